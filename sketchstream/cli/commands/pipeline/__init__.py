"""Commands that run a configuration or look after it: worker, history, service, topics, checks, repairs.

In: arguments, a configuration. Out: publications, answers, text. Touches: what the configuration names.
"""
