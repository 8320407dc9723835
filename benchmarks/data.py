"""JPEG bytes to augmented training tensors on one core, against PIL and torchvision.

Photos and boxes of some shards are brought to the form of processed GRIT first: squares of 224
pixels with white beside the picture, JPEG of quality 95. The plain side takes one after the other
through PIL's decoder, RandomResizedCrop, ColorJitter, RandomGrayscale, ToTensor and Normalize, as
a loader process of the published code does. Ours decodes to 8 bits in the loader process, and
changes the whole batch at once on the training device, here the same core. The worker's share is
what is left to a loader process where the device is another. Decoded pictures are checked equal
first; that both draw from the same distributions is a test of its own.

    python -m benchmarks.data
    python -m benchmarks.data --samples 4 --rounds 1
"""

import io
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision import transforms

from benchmarks.timing import alternate, arguments, report, tabulate
from core.image import decode, resize
from core.text import TextSpec
from trainer.allocator import keep_freed_memory
from trainer.data.augment import augment, to_float
from trainer.data.batch import Batch
from trainer.data.loader import BatchDataset
from trainer.data.pictures import pictures
from trainer.data.sample import Part, Sample, cut
from trainer.data.shard_writer import encode_jpeg, write_shard
from trainer.data.shards import find_shards, index_shards, read_sample
from trainer.sections import AugmentSection, DataSection
from trainer.vocabulary import write_tokenizer

SIDE = 224
OPTIONS = DataSection(train="given", side=SIDE, max_parts=64)
AUGMENT = AugmentSection()
PLAIN = transforms.Compose([
    transforms.RandomResizedCrop(
        SIDE, AUGMENT.crop_scale, interpolation=transforms.InterpolationMode.BICUBIC
    ),
    transforms.RandomApply(
        [
            transforms.ColorJitter(
                AUGMENT.brightness, AUGMENT.contrast, AUGMENT.saturation, AUGMENT.hue
            )
        ],
        AUGMENT.jitter_probability,
    ),
    transforms.RandomGrayscale(AUGMENT.grayscale_probability),
    transforms.ToTensor(),
    transforms.Normalize(OPTIONS.mean, OPTIONS.std),
])  # fmt: skip


def grit_form(sample: Sample) -> Sample:
    """A sample with every picture as a square JPEG, as processed GRIT has them."""
    whole = decode(sample.jpeg)

    def square(image: Image.Image) -> bytes:
        return encode_jpeg(resize(image, SIDE, "letterbox"))

    def picture(part: Part) -> Image.Image:
        return decode(part.jpeg) if part.jpeg else cut(whole, part.box or (0, 0, 1, 1))

    parts = tuple(Part(square(picture(part)), part.text) for part in sample.parts)
    return Sample(sample.photo, square(whole), sample.text, parts)


def plain(jpegs: list[bytes]) -> Tensor:
    """Every picture by itself, ``(n, 3, side, side)``."""
    return torch.stack([PLAIN(Image.open(io.BytesIO(jpeg)).convert("RGB")) for jpeg in jpegs])


def decoded(samples: list[Sample]) -> Tensor:
    """What a loader process gives of the pictures, ``(n, side, side, 3)`` uint8."""
    squares = [one for sample in samples for one in pictures(sample, sample.parts, OPTIONS)]
    return torch.from_numpy(np.stack(squares))


def ours(samples: list[Sample], generator: torch.Generator) -> Tensor:
    """Decoded one by one, changed all at once, ``(n, 3, side, side)``."""
    return augment(decoded(samples), AUGMENT, generator, OPTIONS)


def write(samples: list[Sample], folder: Path, seed: int) -> BatchDataset:
    """The samples as a shard, and what makes batches of it."""
    write_tokenizer(folder / "tokenizer.json")
    write_shard(folder / "00000.tar", samples)
    index = index_shards([folder / "00000.tar"])
    return BatchDataset(index, folder / "tokenizer.json", TextSpec(), OPTIONS, seed)


def main() -> None:
    """Check, measure, and print one table."""
    keep_freed_memory()
    parser = arguments("JPEG bytes to augmented tensors on one core.", rounds=7, seed=0, samples=48)
    parser.add_argument("shards", nargs="?", default="data/flickr8k-boxes/train")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    index = index_shards(find_shards(options.shards)[:1])
    numbers = np.linspace(0, len(index) - 1, options.samples).astype(int).tolist()
    samples = [grit_form(read_sample(index, number)) for number in numbers]
    jpegs = [
        jpeg for one in samples for jpeg in (one.jpeg, *(part.jpeg for part in one.parts)) if jpeg
    ]
    images = [Image.open(io.BytesIO(jpeg)).convert("RGB") for jpeg in jpegs]
    expected = torch.stack([transforms.functional.to_tensor(image) for image in images])
    if not torch.equal(to_float(decoded(samples)), expected):
        sys.exit("decoded pictures differ")
    with tempfile.TemporaryDirectory() as folder:
        dataset = write(samples, Path(folder), options.seed)

        def batch(_: int) -> Batch:
            made = dataset[0, range(len(samples))]
            if not isinstance(made, Batch):
                raise made
            return made

        sides = {
            "plain": lambda _: plain(jpegs),
            "ours, in all": lambda _: ours(samples, generator),
            "ours, the worker's share": lambda _: decoded(samples),
            "the same from the tar, with texts and queries": batch,
        }
        seconds = alternate(sides, options.rounds)
    rates = {
        name: f"{len(jpegs) / sorted(times)[len(times) // 2]:,.0f}"
        for name, times in seconds.items()
    }
    about = (
        f"{len(jpegs)} pictures of {len(samples)} samples, {SIDE} pixels, "
        f"{sum(map(len, jpegs)) / len(jpegs) / 1000:.0f} kB each"
    )
    table = tabulate(seconds, "plain", {"images/s": rates})
    report("data", table, about, options)


if __name__ == "__main__":
    main()
