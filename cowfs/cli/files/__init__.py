"""Commands about the files of volumes and versions."""
