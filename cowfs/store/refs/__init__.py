"""Records that several writers make beside each other: refs, leases and pins."""
