# SPDX-License-Identifier: GPL-2.0
#
# Generates bindings/xprtrdma_bindings.rs, the root of the bindings crate.
#
# Only what kernel::bindings lacks is generated (sunrpc, verbs, CM, helpers);
# every other type is the kernel crate's own, so that a spinlock_t or a
# work_struct means the same thing in both. Layout assertions stay on: they
# prove at compile time that the mixture agrees with the target's C layout.

# Options of gcc that libclang does not know. They are not passed to bindgen.
bindings-skip-flags := \
	-fmin-function-alignment=% -falign-jumps=% -falign-loops=% \
	-fconserve-stack -fno-allow-store-data-races -fno-ipa-cp-clone \
	-fno-ipa-sra -fno-partial-inlining -fno-reorder-blocks \
	-fno-inline-functions-called-once -fno-stack-clash-protection \
	-fno-isolate-erroneous-paths-dereference -femit-struct-debug-baseonly \
	-fsanitize=bounds-strict -fstrict-flex-arrays=% -fzero-call-used-regs=% \
	-fzero-init-padding-bits=% -fdiagnostics-show-context -fdiagnostics-show-context=% \
	-mindirect-branch=thunk-extern -mindirect-branch-register \
	-mindirect-branch-cs-prefix -mfunction-return=thunk-extern \
	-mno-fp-ret-in-387 -mpreferred-stack-boundary=% -mskip-rax-setup \
	-mrecord-mcount -mstack-protector-guard% -mdirect-extern-access \
	-mabi=lp64 -mgeneral-regs-only -msign-return-address=% \
	--param=% --param asan-% -fasan-shadow-offset=% \
	-fplugin-arg-% -fplugin=%

bindings-allow := \
	--allowlist-file '.*/include/linux/sunrpc/.*' \
	--allowlist-file '.*/include/(uapi/)?rdma/.*' \
	--allowlist-file '.*/helpers/(helpers|passive|svc|rds).h' \
	--allowlist-file '.*/kunit/fake_.*.h' \
	--allowlist-file '.*/net/rds/(rds|info).h' \
	--allowlist-file '.*/include/uapi/linux/rds.h' \
	--allowlist-function 'rust_do_trace_(xprt|svc)rdma_.*' \
	--allowlist-function 'get_random_u(16|64)' \
	--allowlist-function 'single_task_running' \
	--allowlist-function 'rcuwait_wake_up' \
	--allowlist-function 'rdma_dim' \
	--allowlist-var '__tracepoint_(xprt|svc)rdma_.*' \
	--allowlist-type 'lwq(_node)?' \
	--allowlist-type 'dim(_.*)?' \
	--allowlist-type 'rdma_cgroup' \
	--allowlist-type 'rdmacg_device' \
	--allowlist-type 'irq_poll' \
	--allowlist-type 'irq_poll_fn' \
	--allowlist-type 'proc_ops' \
	--allowlist-type 'iphdr.*' \
	--allowlist-type 'ifla_vf_.*' \
	--allowlist-type 'tph_mem_type'

# Types that the kernel's own bindings contain only in some versions (from 7.3 on). They are
# generated if the kernel's bindings lack them.
bindings-sometimes := netns_tracker netdevice_tracker possible_net_t sockaddr_in in_addr
bindings-allow += $(foreach type,$(bindings-sometimes),$(if \
	$(shell grep -Ew '(struct|type) $(type)' $(objtree)/rust/bindings/bindings_generated.rs),, \
	--allowlist-type $(type)))

# No crate needs these packed uapi structures and inline functions, so they are left out. Of
# rds_sock only the address is used, so its fields are left out.
bindings-block := \
	--blocklist-type 'ib_user_mad_reg_req.*' \
	--blocklist-function 'ib_.*_user_mad.*' \
	--opaque-type 'rds_sock'

# The parameters with which the kernel calls bindgen, without comments and empty lines.
bindings-params = $(shell grep -Ev '^\#|^$$' $(srctree)/rust/bindgen_parameters)

bindings-c-flags = $(filter-out $(bindings-skip-flags) $(CC_FLAGS_LTO),$(c_flags)) \
	-w --target=$(if $(CONFIG_X86_64),x86_64-linux-gnu,$(if $(CONFIG_ARM64),aarch64-linux-gnu)) \
	-fno-builtin -D__BINDGEN__ $(bindings-more)

quiet_cmd_bindings = BINDGEN $@
      cmd_bindings = \
	$(BINDGEN) $< $(bindings-params) --rust-target 1.85 --use-core \
		--with-derive-default --ctypes-prefix ffi --no-debug '.*' \
		--enable-function-attribute-detection --no-recursive-allowlist \
		$(bindings-allow) $(bindings-block) \
		--raw-line '// SPDX-License-Identifier: GPL-2.0' \
		--raw-line '//! Bindings to sunrpc, ib_core and rdma_cm, generated from the headers of the target kernel.' \
		--raw-line '\#![allow(warnings, missing_docs, unsafe_op_in_unsafe_fn, clippy::all, clippy::undocumented_unsafe_blocks)]' \
		--raw-line 'pub use kernel::bindings::*; use kernel::ffi; use pin_init::MaybeZeroable;' \
		-o $@ -- $(bindings-c-flags) -DMODULE

$(obj)/bindings/xprtrdma_bindings.rs: $(src)/bindings/bindings_helper.h $(src)/helpers/helpers.h $(src)/helpers/trace.h \
		$(bindings-headers) FORCE
	$(call if_changed,bindings)

targets += bindings/xprtrdma_bindings.rs

$(obj)/bindings/xprtrdma_bindings.o: $(obj)/bindings/xprtrdma_bindings.rs
