"""cowfs behind the interfaces of other libraries. Only the command line imports one of them:
`cowfs.integrations.kubernetes` and its manifests."""
