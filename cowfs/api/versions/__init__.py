"""Operations on the versions of a volume without a mount: compare, merge, restore, tag, publish."""
