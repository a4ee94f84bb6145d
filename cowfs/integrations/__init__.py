"""cowfs inside of other libraries' interfaces. Nothing else imports these modules."""
