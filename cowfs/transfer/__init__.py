"""Trees into volumes and out of them, without an engine: uploads, downloads, imports, exports.

upload/    a directory of this machine as a volume's next version
imports/   objects of a bucket, members of an archive
"""
