"""Rules: building, trusting and loading the policy bundle, the engines that evaluate it, the decision.

`engine` says what an engine is; `wasm` and `opa_server` are the two. `bundle` loads what `build` made
with the OPA that `toolchain` provides. `decision` turns violations into an answer.
"""
