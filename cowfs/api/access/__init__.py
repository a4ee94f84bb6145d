"""Files of a version or a volume without a mount: sessions of this process behind `vol.files`."""
