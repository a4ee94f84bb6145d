"""Google Cloud Storage and Azure Blob Storage, through their own clients."""
