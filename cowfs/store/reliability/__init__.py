"""What a store does about requests that fail, hang or return damaged bytes.

A conditional put is never repeated here: only its caller knows what an earlier attempt did.
"""
