"""CIFAR-10 and CIFAR-100 in the pickled batches that their author publishes."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from sliceformer_lab.data.download import OfficialFile, fetch_unpacked
from sliceformer_lab.data.images.base import ArrayImages, Images
from sliceformer_lab.data.images.small_images import OfficialImages
from sliceformer_lab.data.pickles import load_arrays
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.errors import DataError

LABELS = "airplane automobile bird cat deer dog frog horse ship truck"
FINE_LABELS = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree
wolf woman worm
"""
_TORONTO = "https://www.cs.toronto.edu/~kriz/"


@dataclass(kw_only=True, eq=False, repr=False)
class CIFAR10(OfficialImages):
    """Colour photographs, 32 x 32, of 10 classes in root/cifar-10-batches-py: 50,000 to train on, 10,000 to test on."""

    title = "cifar10"
    num_classes = 10
    classes: ClassVar[tuple[str, ...]] = tuple(LABELS.split())
    image_size = 32
    mean, std = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
    archive: ClassVar[OfficialFile] = OfficialFile(
        _TORONTO + "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071
    )
    inner: ClassVar[str] = "cifar-10-batches-py"
    labels: ClassVar[str] = "labels"
    published: ClassVar[dict[str, str]] = {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    }

    def obtain(self) -> None:
        fetch_unpacked(self.archive, self.path, self.inner, download=self.download, check=self.verify)

    def checksums(self) -> dict[Path, str]:
        return {self.path / self.inner / name: md5 for name, md5 in self.published.items()}

    def read(self) -> dict[Stage, Images]:
        *training, test = [self._batch(path) for path in self.checksums()]  # the last file is the test split
        pixels, targets = torch.cat([b.pixels for b in training]), torch.cat([b.targets for b in training])
        return {"train": ArrayImages(pixels, targets), "test": test}

    def _batch(self, path: Path) -> ArrayImages:
        content = load_arrays(path)
        try:
            pixels, targets = torch.from_numpy(content["data"]), torch.tensor(content[self.labels], dtype=torch.int64)
            return self.labelled(pixels.view(-1, 3, 32, 32), targets, path)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise DataError(f"{path} is not a CIFAR batch ({error!r}); delete it to download it again") from error


@dataclass(kw_only=True, eq=False, repr=False)
class CIFAR100(CIFAR10):
    """Colour photographs, 32 x 32, of 100 classes in root/cifar-100-python: 50,000 to train on, 10,000 to test on."""

    title = "cifar100"
    num_classes = 100
    classes = tuple(FINE_LABELS.split())
    mean, std = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
    archive = OfficialFile(_TORONTO + "cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437)
    inner = "cifar-100-python"
    labels = "fine_labels"
    published: ClassVar[dict[str, str]] = {
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    }
