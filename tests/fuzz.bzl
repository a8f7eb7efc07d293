"""Builds fuzzers: programs with clang's libFuzzer and the address and undefined behaviour sanitizers.

A fuzzer names libraries like any program. All of them are compiled again for it, by clang++ with the sanitizers and
libFuzzer's counters, whatever compiler and configuration the build has. Fuzzers share the compiled objects.
"""

_COMPILER = "clang++-14"
_SANITIZERS = "-fsanitize=address,undefined"
_FLAGS = [
    "-std=c++20",
    "-O1",
    "-g",
    "-fno-omit-frame-pointer",
    _SANITIZERS,
    "-fno-sanitize=function",  # Clang 14 cannot compile coroutines with it (LLVM issue 49689).
    "-fno-sanitize-recover=all",
]

_Instrumented = provider(
    doc = "A library and what it depends on, as fuzzers need it.",
    fields = {"objects": "depset of object files"},
)

def _is_source(file):
    return file.extension in ["cc", "cpp"]

def _compile(ctx, name, sources, headers, context):
    """Compiles one object from each source, which includes `headers` and what is in `context`, a CcCompilationContext.
    """
    objects = []
    for source in sources:
        object = ctx.actions.declare_file("_fuzz/{}/{}.o".format(name, source.basename))
        flags = list(_FLAGS) + ["-fsanitize=fuzzer-no-link", "-iquote.", "-iquote" + ctx.bin_dir.path]
        flags += ["-D" + define for define in context.defines.to_list()]
        for directory in context.includes.to_list() + context.system_includes.to_list():
            flags += ["-isystem", directory]
        ctx.actions.run_shell(
            command = 'exec {} "$@"'.format(_COMPILER),
            arguments = flags + ["-c", source.path, "-o", object.path],
            inputs = depset([source] + headers, transitive = [context.headers]),
            outputs = [object],
            mnemonic = "FuzzCompile",
            progress_message = "Compiling {} for fuzzers".format(source.short_path),
            use_default_shell_env = True,
        )
        objects.append(object)
    return objects

def _instrument_impl(target, ctx):
    if CcInfo not in target:
        return []
    sources = [file for file in getattr(ctx.rule.files, "srcs", []) if _is_source(file)]
    headers = [file for file in getattr(ctx.rule.files, "srcs", []) if not _is_source(file)]
    return [_Instrumented(objects = depset(
        _compile(ctx, ctx.label.name, sources, headers, target[CcInfo].compilation_context),
        transitive = [dep[_Instrumented].objects for dep in ctx.rule.attr.deps if _Instrumented in dep],
    ))]

_instrument = aspect(implementation = _instrument_impl, attr_aspects = ["deps"])

def _fuzzer_impl(ctx):
    info = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    objects = depset(
        _compile(ctx, ctx.label.name, ctx.files.srcs, [], info.compilation_context),
        transitive = [dep[_Instrumented].objects for dep in ctx.attr.deps],
    )
    libraries = []
    for input in info.linking_context.linker_inputs.to_list():
        libraries += input.user_link_flags
    program = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.run_shell(
        command = 'exec {} "$@"'.format(_COMPILER),
        arguments = [_SANITIZERS + ",fuzzer"] + [object.path for object in objects.to_list()] + libraries + ["-o", program.path],
        inputs = objects,
        outputs = [program],
        mnemonic = "FuzzLink",
        use_default_shell_env = True,
    )
    return [DefaultInfo(executable = program)]

fuzzer = rule(
    implementation = _fuzzer_impl,
    executable = True,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cc"]),
        "deps": attr.label_list(providers = [CcInfo], aspects = [_instrument]),
    },
)
