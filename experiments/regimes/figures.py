"""stub"""


def plot(data, folder, stem):
    return []
