"""Checkpoints of training frameworks as versions, through `cowfs.checkpoints`. Each module imports
its framework; import it where the framework is installed.

hugging_face   a callback for `transformers.Trainer`
lightning      a `ModelCheckpoint` for Lightning
distributed    a writer for `torch.distributed.checkpoint`
mlflow         an artifact repository for cowfs URLs; MLflow finds it by itself
processes      refuses jobs that one mount cannot serve
"""
