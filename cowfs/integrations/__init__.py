"""cowfs behind the interfaces of other libraries. No other module imports these."""
