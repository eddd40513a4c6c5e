"""The admission webhook: protocol, callers, judgement, record, answer."""
