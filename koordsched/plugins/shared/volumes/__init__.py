"""What plugins that look at volumes share: the claims of a pod, the classes of claims, in-tree names of CSI drivers."""
