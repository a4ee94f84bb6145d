"""Whole stores: collection, verification, repair, copies to other stores, quotas, keys."""
