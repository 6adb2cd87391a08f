"""What tests of noise share: sources of words, the replay oracle, independent samplers."""
