"""How people call data sets."""

TITLES = {
    "imagenet": "ImageNet",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "sun397": "SUN397",
    "caltech101": "Caltech-101",
    "stl10": "STL-10",
    "food101": "Food-101",
    "cub2011": "CUB",
    "cars": "Cars",
    "aircraft": "Aircraft",
    "pets": "Pets",
    "flowers102": "Flowers102",
    "dtd": "DTD",
    "eurosat": "EuroSAT",
    "resisc45": "RESISC45",
    "country211": "Country211",
    "coco-karpathy": "COCO, Karpathy test",
    "coco-val2017": "COCO, val2017",
    "flickr30k": "Flickr30k, Karpathy test",
    "voc2007": "VOC2007 test",
    "voc2007-all": "VOC2007, all pictures",
    "coco-objects": "COCO objects, val2017",
    "hierarcaps": "HierarCaps",
    "sugarcrepe": "SugarCrepe",
    "eccv-caption": "ECCV Caption",
}
"""By the name that `hyper3 data fetch` knows."""


def data_of(task: str) -> str:
    """The name of a task's data: `coco-val2017` of `retrieval/coco-val2017~limit-300`."""
    return task.partition("/")[2].partition("~")[0]


def variant_of(task: str) -> str:
    """The options that were not the usual ones: `limit 300, seed 1` of `~limit-300~seed-1`."""
    return ", ".join(option.replace("-", " ", 1) for option in task.split("~")[1:])


def label_of(task: str) -> str:
    """The name of a task's data, with the options that were not the usual ones."""
    return ", ".join(filter(None, (data_of(task), variant_of(task))))
