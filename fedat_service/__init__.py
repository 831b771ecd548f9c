"""The aggregation service: tier models, mixing, codecs, HTTP."""
