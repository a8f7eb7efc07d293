"""Builds a test with own functions, as `--//cell/functions:own=LABEL` does for a whole build."""

def _set_own(_settings, attr):
    return {"//cell/functions:own": attr.own}

_with_own = transition(implementation = _set_own, inputs = [], outputs = ["//cell/functions:own"])

def _own_functions_test(ctx):
    test = ctx.attr.test[0][DefaultInfo]
    executable = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.symlink(output = executable, target_file = test.files_to_run.executable, is_executable = True)
    return [DefaultInfo(executable = executable, runfiles = test.default_runfiles)]

own_functions_test = rule(
    implementation = _own_functions_test,
    test = True,
    attrs = {
        "own": attr.string(mandatory = True),  # The library that defines AddOwnFunctions.
        "test": attr.label(mandatory = True, cfg = _with_own),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
)
