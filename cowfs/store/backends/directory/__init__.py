"""Objects as files below a local directory: the backend of `file://` stores."""
