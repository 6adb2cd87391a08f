"""What tests share: slow references, made-up streams, words for the samplers, commands, applications on a broker."""
