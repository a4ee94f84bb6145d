"""S3 and what speaks its protocol: requests by obstore, and by s3fs where obstore cannot go."""
