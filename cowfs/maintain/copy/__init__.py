"""Copies between stores: pushes or pulls versions under the same ids."""
