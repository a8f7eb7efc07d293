"""cc_archive: a library and all of its parts in one static archive, for projects that build without Bazel."""

def _cc_archive_impl(ctx):
    archives, flags = [], []
    for linker_input in ctx.attr.library[CcInfo].linking_context.linker_inputs.to_list():
        flags.extend([flag for flag in linker_input.user_link_flags if flag not in flags])
        for library in linker_input.libraries:
            archives.append(library.static_library or library.pic_static_library)
    archives = [archive for archive in archives if archive != None]
    script = ["CREATE %s" % ctx.outputs.archive.path] + ["ADDLIB %s" % archive.path for archive in archives] + ["SAVE", "END"]
    ctx.actions.run_shell(
        inputs = archives,
        outputs = [ctx.outputs.archive],
        command = "ar -M <<'SCRIPT'\n%s\nSCRIPT" % "\n".join(script),
        mnemonic = "CcArchive",
    )
    ctx.actions.write(ctx.outputs.flags, " ".join(flags) + "\n")
    made = [ctx.outputs.archive, ctx.outputs.flags]
    return [DefaultInfo(files = depset(made), runfiles = ctx.runfiles(files = made))]

cc_archive = rule(
    implementation = _cc_archive_impl,
    attrs = {"library": attr.label(providers = [CcInfo])},
    outputs = {"archive": "lib%{name}.a", "flags": "%{name}.flags"},  # The flags with which a program is linked.
)
