"""The backends: each stores objects in one kind of place, by the contract of `store.contract`.

directory/       files below a local directory
s3/              S3 and what speaks its protocol, by obstore or s3fs
cloud/           Google Cloud Storage and Azure Blob Storage
fsspec_store     any other fsspec file system
"""
