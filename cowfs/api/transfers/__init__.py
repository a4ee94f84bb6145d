"""Transfers of trees into and out of volumes: uploads, downloads, imports, exports, copies."""
