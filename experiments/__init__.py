"""Experiments that can be run, resumed and plotted from the command line (``python -m experiments``)."""
