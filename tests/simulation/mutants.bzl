"""Builds a program as with --config=mutants, whatever the configuration of the build is."""

def _with_mutants_impl(settings, _attr):
    return {"//command_line_option:copt": settings["//command_line_option:copt"] + ["-DCELL_MUTANTS"]}

_with_mutants = transition(
    implementation = _with_mutants_impl,
    inputs = ["//command_line_option:copt"],
    outputs = ["//command_line_option:copt"],
)

def _mutated_binary_impl(ctx):
    program = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.symlink(output = program, target_file = ctx.attr.binary[0][DefaultInfo].files_to_run.executable, is_executable = True)
    return [DefaultInfo(
        executable = program,
        runfiles = ctx.attr.binary[0][DefaultInfo].default_runfiles,
    )]

mutated_binary = rule(
    implementation = _mutated_binary_impl,
    executable = True,
    attrs = {
        "binary": attr.label(cfg = _with_mutants),
        "_allowlist_function_transition": attr.label(default = "@bazel_tools//tools/allowlists/function_transition_allowlist"),
    },
)
