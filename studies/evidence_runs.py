"""The small runs of `evidence.py`: one for each task, a few more, and why some tasks have none."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

COPY = "pictures of CIFAR-10 (decoded from JPEG copies)"


@dataclass(frozen=True)
class Row:
    """A run as words of a command line, and its data in a few words.

    {source} is replaced by the folder of the user and {made} by that of the stand-ins. `control` adds the same run with
    attention=identity, which mixes no tokens.
    """

    words: str
    data: str
    control: bool = False

    def command(self, attention: str | None = None, *, source: str = "FOLDER", made: str = "MADE") -> list[str]:
        """The words, with another attention if one is given."""
        words = [word.format(source=source, made=made) for word in shlex.split(self.words)]
        return (
            words
            if attention is None
            else [f"attention={attention}" if w.startswith("attention=") else w for w in words]
        )

    @property
    def attention(self) -> str:
        """The name of the attention."""
        return next(word.removeprefix("attention=") for word in self.words.split() if word.startswith("attention="))


_PICTURES = "encoder=tiny task.patch_size=4 task.stem=conv optim=fast"
_ENLARGED = (
    "block=vit encoder=tiny task.stem=conv task.mixup=0 task.cutmix=0 data.num_workers=0 data.batch_size=64 optim=fast"
)

ROWS: dict[str, Row] = {
    "lra_text": Row(
        "task=lra_text attention=csp data.root={source} encoder=tiny encoder.position=none "
        "data.limit_train=4000 data.limit_eval=2000 optim.epochs=3 optim.lr=2e-3",
        "a part of IMDB",
    ),
    "lra_retrieval": Row(
        "task=lra_retrieval attention=mha data.root={made}/lra_retrieval data.max_len=120 encoder=tiny optim.epochs=2",
        "SMS in the format of the AAN pairs: are both messages spam, or both no spam?",
        control=True,
    ),
    "mnist": Row(
        f"task=mnist attention=csp data.root={{source}} data.verify=false {_PICTURES} optim.epochs=3 "
        "data.limit_train=6000 data.limit_eval=2000",
        "MNIST, a part (training pixels rebuilt within one grey level)",
    ),
    "cifar10": Row(
        f"task=cifar10 attention=mha data.root={{source}} data.verify=false {_PICTURES} optim.epochs=4 "
        "data.limit_train=3000 data.limit_eval=600",
        f"{COPY}, a part",
    ),
    "cifar100": Row(
        f"task=cifar100 attention=mha data.root={{made}}/cifar100 data.verify=false {_PICTURES} optim.epochs=4 "
        "data.limit_train=3000 data.limit_eval=600",
        f"{COPY} in CIFAR-100's files: 10 of 100 classes occur",
    ),
    "tiny_imagenet": Row(
        f"task=tiny_imagenet attention=csp data.root={{made}}/tiny_imagenet data.image_size=64 task.patch_size=8 "
        f"{_ENLARGED} data.augment=crop optim.epochs=3 data.limit_train=3000 data.limit_eval=600",
        f"{COPY}, 64 x 64, in Tiny-ImageNet's folders: 10 classes",
    ),
    "imagenet1k": Row(
        f"task=imagenet1k attention=csp data.root={{made}}/imagenet1k data.image_size=32 task.patch_size=4 {_ENLARGED} "
        "data.augment=none data.crop_pct=1 optim.epochs=3 data.limit_train=3000 data.limit_eval=600",
        f"{COPY} in ImageNet's folders: 10 of 1,000 classes, 32 x 32",
    ),
    "dogs_vs_cats": Row(
        f"task=dogs_vs_cats attention=csp data.root={{made}}/dogs_vs_cats data.image_size=32 data.num_workers=0 "
        f"{_PICTURES} optim.epochs=5 data.limit_train=4000 data.limit_eval=800",
        "cats and dogs of CIFAR-10 (decoded from JPEG copies) under Kaggle's file names",
    ),
    "image_folder": Row(
        "task=image_folder attention=csp data.root={made}/image_folder encoder=tiny optim.target_steps=300 "
        "data.limit_train=3000 data.limit_eval=500 "
        "optim.least_epochs=4",
        "four classes of CIFAR-10 (decoded from JPEG copies) in folders",
    ),
    "image_csv": Row(
        "task=image_csv attention=csp data.file={made}/image_csv/digits.csv 'data.targets=[degrees]' "
        "data.split_column=split optim.target_steps=600",
        "digits of MNIST, turned by an angle within 60 degrees, the target",
    ),
    "digits": Row("task=digits attention=csp optim.epochs=20", "8 x 8 digits of scikit-learn", control=True),
    "imdb": Row(
        "task=imdb attention=mha data.root={source} block=transformer task.pool=mean encoder=tiny encoder.dropout=0.1 "
        "optim=fast optim.epochs=3 data.max_len=128 data.batch_size=32 data.limit_train=4000 data.limit_eval=1000",
        "a part of IMDB, 128 word pieces",
    ),
    "text_csv": Row(
        "task=text_csv attention=csp data.file={source}/own/ag.csv data.split_column=split data.root={made}/text_csv "
        "data.max_len=64 encoder=tiny encoder.dropout=0.2 encoder.embed_dropout=0.3 optim.target_steps=250 "
        "optim.least_epochs=2",
        "a table of 8,000 texts of AG News",
    ),
    "lra_listops": Row(
        "task=lra_listops attention=mha data.root={made}/lra_listops data.min_len=10 data.max_len=100 "
        "data.batch_size=64 data.num_train=8000 data.num_val=1000 encoder=tiny "
        "encoder.position=sincos task.pool=max task.head=linear optim.epochs=4",
        "generated by the published rules, but of 10 to 100 symbols",
        control=True,
    ),
    "lra_listops-mega": Row(
        "task=lra_listops block=mega attention=mega data.root={made}/lra_listops data.min_len=10 data.max_len=100 "
        "data.batch_size=64 data.num_train=8000 data.num_val=1000 encoder=mega encoder.dim=64 encoder.depth=2 "
        "task.pool=mean task.head=mega task.embed_std=null optim.epochs=3",
        "generated by the published rules, but of 10 to 100 symbols; MEGA's block",
    ),
    "lra_image": Row(
        "task=lra_image attention=sliceformer data.root={source} data.verify=false encoder=tiny task.pool=mean "
        "data.batch_size=32 data.limit_train=2000 data.limit_eval=400 optim.epochs=3 optim.warmup_steps=20",
        f"{COPY}, grey, a part",
    ),
    "modelnet40": Row(
        "recipe=points/modelnet_quick attention=mha data.root={source} data.num_points=256 encoder=points_tiny "
        "data.processes=1 optim.epochs=8",
        "ModelNet40's airplanes and persons only, 256 points",
    ),
    "shapenet_part": Row(
        "task=shapenet_part attention=mha data.root={made}/shapenet_part data.num_points=256 encoder=points_tiny "
        "data.batch_size=8 data.processes=1 optim.epochs=10",
        "airplanes and persons of ModelNet40 in ShapeNetPart's files; parts are slices of equal length",
        control=True,
    ),
    "point_folder": Row(
        "task=point_folder attention=mha data.root={made}/point_folder data.cache={made}/point_folder_cache "
        "data.processes=1 optim.target_steps=250",
        "digits of MNIST as clouds of at most 96 points",
    ),
    "qm9_gap": Row(
        "task=qm9_gap attention=mha data.root={source} data.limit_train=3000 data.limit_eval=1000 encoder.depth=2 "
        "optim.epochs=6 optim.warmup_steps=20 data.processes=1",
        "a part of QM9",
    ),
    "zinc": Row(
        "task=zinc attention=mha data.root={made}/zinc encoder.depth=2 data.batch_size=64 "
        "optim.epochs=8 optim.warmup_steps=20 data.limit_train=3000",
        "molecules of ZINC in torch-geometric's pickles; the target is logP, not penalised logP",
    ),
    "zinc-gps": Row(
        "task=zinc block=gps attention=mha task.bias=false data.root={made}/zinc encoder.depth=2 data.batch_size=64 "
        "optim.epochs=4 optim.warmup_steps=20 data.limit_train=3000",
        "as `zinc`; GraphGPS' block, GatedGCN beside softmax attention",
    ),
    "pcqm4m": Row(
        "task=pcqm4m attention=mha data.root={made}/pcqm4m data.download=false encoder=graph_small encoder.depth=2 "
        "optim=graph_small optim.epochs=4 optim.warmup_steps=20 data.batch_size=64 data.num_workers=0 data.processes=1 "
        "data.limit_train=3000",
        "molecules of QM9 and their gap in PCQM4Mv2's table and splits",
    ),
    "peptides_func": Row(
        "recipe=graphs/peptides_quick attention=csp data.root={source} data.limit_train=3000 data.limit_eval=800 "
        "data.processes=1 optim.epochs=4",
        "Peptides-func, official files and splits, a part",
    ),
    "peptides_struct": Row(
        "task=peptides_struct attention=csp data.root={made}/peptides_struct data.verify=false encoder.dim=32 "
        "encoder.depth=2 encoder.mlp_dim=64 optim=graph_small optim.lr=2e-3 optim.warmup_steps=50 optim.epochs=4 "
        "data.processes=1",
        "3,400 peptides in Peptides-struct's files; its eleven targets are numbers of the graph, not of the 3-D shape",
    ),
    "pyg": Row(
        "task=pyg attention=mha data.dataset=TUDataset data.name=Mutagenicity data.root={source} "
        "optim.target_steps=600",
        "Mutagenicity of TUDataset: is a molecule a mutagen?",
        control=True,
    ),
    "series_csv": Row(
        "task=series_csv attention=csp data.file={made}/series_csv/vowels.csv data.root={made}/series_csv_cache "
        "data.label_column=speaker data.id_column=utterance data.time_column=frame data.split_column=split",
        "JapaneseVowels: 12 coefficients over 7 to 29 frames, nine speakers",
        control=True,
    ),
    "series_folder": Row(
        "task=series_folder attention=csp data.root={made}/series_folder data.cache={made}/series_folder_cache "
        "data.processes=1",
        "recordings of spoken digits by six speakers, who are the same in training",
        control=True,
    ),
    "molecule_csv": Row(
        "task=molecule_csv attention=mha data.file={source}/own/esol.csv data.root={made}/molecule_csv "
        "'data.targets=[y]' data.split_column=split data.processes=1 optim.target_steps=300",
        "ESOL, solubility of 1,128 molecules",
    ),
}
"""From the name of a run to the run; the first one of a task is the one that other tables show."""

REASONS: dict[str, str] = {
    "lra_pathfinder": "No attention has learned it here, a CNN has: [tasks.md](../docs/tasks.md)",
    "lra_pathx": "Not trained: at the 55,000 tokens a second of these runs 10 epochs of 20,000 pictures take 17 h",
    "mask_folder": "Six attentions on CamVid: [dense.md](dense.md)",
    "text_lm": "Softmax, `csp_causal` and n-grams on reviews of IMDB: [causal.md](causal.md)",
    "torchvision": "Not trained. `mnist` reads [Fashion-MNIST](fashion_mnist/README.md)'s files, with nine rows",
}
"""Why a task has no run."""


def named(names: Sequence[str]) -> dict[str, Row]:
    """The rows with these names in this order, all without names. Raises ValueError for an unknown name."""
    if unknown := sorted(set(names) - set(ROWS)):
        raise ValueError(f"no run has the name {', '.join(unknown)}; known are {', '.join(ROWS)}")
    return {name: ROWS[name] for name in names or ROWS}
