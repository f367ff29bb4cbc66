"""Models of the transformers library: tiny random ones of every architecture, loaded ones, and their caches."""
