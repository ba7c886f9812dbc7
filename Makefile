# SPDX-License-Identifier: GPL-2.0
#
# Targets of the project. Kbuild and rust/Kbuild describe the module itself; tools/lab does
# everything that needs a kernel or a machine.

LAB := tools/lab
REPO := $(CURDIR)
KERNEL_OPTION = $(if $(KERNEL),--kernel '$(KERNEL)')

# The oldest kernel with the Rust interfaces that the module uses.
OLDEST := 7.2

ifdef KDIR
# KDIR is the directory of a distribution's kernel headers or of a prepared kernel tree. With KDIR,
# the modules are built with the tools of this machine.
RUSTC ?= rustc
BINDGEN ?= bindgen
ifeq ($(wildcard $(KDIR)/include/config/kernel.release),)
$(error KDIR=$(KDIR) is no prepared kernel tree (looked for include/config/kernel.release): install the headers of that kernel, or run 'make modules_prepare' in a tree of your own)
endif
RELEASE := $(shell cat '$(KDIR)/include/config/kernel.release')
ifneq ($(OLDEST),$(firstword $(shell printf '%s\n' $(OLDEST) $(RELEASE) | sort -V)))
$(error KDIR=$(KDIR) is kernel $(RELEASE): the module needs the Rust interfaces of $(OLDEST) or newer)
endif
ifeq ($(shell grep -x CONFIG_RUST=y '$(KDIR)/include/config/auto.conf' 2> /dev/null),)
$(error KDIR=$(KDIR) is kernel $(RELEASE), which was built without Rust (CONFIG_RUST is not set, as in RHEL's kernels): it loads no module in Rust; use another kernel, or the in-tree rpcrdma)
endif
ifeq ($(wildcard $(KDIR)/rust/libkernel.rmeta),)
$(error KDIR=$(KDIR) has no Rust metadata (looked for rust/libkernel.rmeta): Ubuntu has it in linux-lib-rust-$(RELEASE); the headers packages of Debian leave it out, use KERNEL=$(RELEASE) there; in a tree of your own run 'make modules_prepare')
endif
# rustc can read only metadata that the same build of rustc has written.
COMPILER := $(shell sed -n 's/^CONFIG_RUSTC_VERSION_TEXT="\(.*\)"$$/\1/p' '$(KDIR)/include/config/auto.conf' 2> /dev/null)
FOUND := $(shell $(RUSTC) --version 2> /dev/null)
ifneq ($(COMPILER),)
ifneq ($(COMPILER),$(FOUND))
$(error the kernel in KDIR=$(KDIR) was built by '$(COMPILER)', but $(RUSTC) is $(if $(FOUND),'$(FOUND)',not there): install that very build (the version of another origin will not do) and name it with RUSTC=/path/to/rustc; Debian and Ubuntu have it as rustc or rustc-$(basename $(word 2,$(COMPILER))))
endif
endif
ifeq ($(shell command -v '$(BINDGEN)'),)
$(error there is no $(BINDGEN): install it (Debian and Ubuntu: bindgen, Arch: rust-bindgen), or name it with BINDGEN=/path/to/bindgen)
endif
# The command line names all tools, because the kernel's makefiles take no tools from the
# environment.
CLANG := $(shell grep -x CONFIG_CC_IS_CLANG=y '$(KDIR)/include/config/auto.conf' 2> /dev/null)
KBUILD = $(MAKE) -C '$(KDIR)' M='$(REPO)' MO='$(REPO)/build/$(RELEASE)$(1)' RUSTC='$(RUSTC)' BINDGEN='$(BINDGEN)' $(if $(CLANG),LLVM=1)
else
RELEASE = $(shell $(LAB) kernel $(KERNEL_OPTION) --field release)
endif

.PHONY: all
all: modules

.PHONY: modules
modules:
ifdef KDIR
	mkdir -p build/$(RELEASE)
	$(call KBUILD) modules
	cp build/$(RELEASE)/rust/xprtrdma_rs.ko build/$(RELEASE)/xprtrdma_rs.ko
else
	$(LAB) build $(KERNEL_OPTION) $(if $(filter 1,$(CLIPPY)),--clippy)
endif

# Builds the server's module, in a separate directory.
.PHONY: server
server:
ifdef KDIR
	mkdir -p build/$(RELEASE)-server
	$(call KBUILD,-server) XPRTRDMA_SERVER=1 modules
	cp build/$(RELEASE)-server/rust/svcrdma_rs.ko build/$(RELEASE)-server/svcrdma_rs.ko
else
	$(LAB) build $(KERNEL_OPTION) --variant server $(if $(filter 1,$(CLIPPY)),--clippy)
endif

# Builds the module of RDS. KDIR must be a kernel tree with the source of rds.ko, because that
# source contains the headers of RDS.
.PHONY: rds
rds:
ifdef KDIR
	mkdir -p build/$(RELEASE)-rds
	$(call KBUILD,-rds) XPRTRDMA_RDS=1 modules
	cp build/$(RELEASE)-rds/rust/rds_rdma_rs.ko build/$(RELEASE)-rds/rds_rdma_rs.ko
else
	$(LAB) build $(KERNEL_OPTION) --variant rds $(if $(filter 1,$(CLIPPY)),--clippy)
endif

.PHONY: modules_install
modules_install: modules
	install -D -m 644 build/$(RELEASE)/xprtrdma_rs.ko \
		'$(INSTALL_MOD_PATH)/lib/modules/$(RELEASE)/updates/xprtrdma_rs.ko'
	for built in server/svcrdma_rs.ko rds/rds_rdma_rs.ko; do \
		if [ -e build/$(RELEASE)-$$built ]; then \
			install -m 644 build/$(RELEASE)-$$built \
				'$(INSTALL_MOD_PATH)/lib/modules/$(RELEASE)/updates/'; \
		fi; \
	done
	install -D -m 644 tools/packaging/xprtrdma_rs.conf \
		'$(INSTALL_MOD_PATH)/etc/modprobe.d/xprtrdma_rs.conf'
	@if command -v depmod > /dev/null; then \
		depmod $(if $(INSTALL_MOD_PATH),-b '$(INSTALL_MOD_PATH)') $(RELEASE); \
	else echo "this machine has no depmod: run 'depmod $(RELEASE)' where the module goes"; fi

# Uses dh_dkms and sphinx-build of this machine if both are installed, otherwise those of the lab.
.PHONY: deb
deb: modules server $(if $(or $(if $(KDIR),,lab),$(wildcard $(KDIR)/net/rds/rds.h)),rds)
	$(if $(and $(shell command -v dh_dkms),$(shell command -v sphinx-build)),,$(LAB) exec )tools/packaging/build \
		build/$(RELEASE)/xprtrdma_rs.ko build/$(RELEASE)-server/svcrdma_rs.ko \
		$$(ls build/$(RELEASE)-rds/rds_rdma_rs.ko 2> /dev/null)

.PHONY: rpm
rpm:
	$(if $(shell command -v rpmbuild),,$(LAB) exec -- )tools/packaging/build --rpm --out build/rpm

.PHONY: clean
clean:
	$(LAB) clean

.PHONY: demo
demo:
	$(LAB) demo $(KERNEL_OPTION)

.PHONY: demo-rails
demo-rails:
	$(LAB) demo --rails $(KERNEL_OPTION)

# Demonstrates our server module. First, a server with our module serves both clients. Then each of
# the two machines uses both of our modules.
.PHONY: demo-server
demo-server:
	$(LAB) demo --server $(KERNEL_OPTION)

# Demonstrates the promises of rds-rdma(7) for RDS sockets, with our module and with the in-tree
# module.
.PHONY: demo-rds
demo-rds:
	$(LAB) demo --rds $(KERNEL_OPTION)

# Demonstrates version two of RPC-over-RDMA. No server except ours supports this version.
.PHONY: demo-v2
demo-v2:
	$(LAB) demo --version-two $(KERNEL_OPTION)

.PHONY: shell
shell:
	$(LAB) shell $(KERNEL_OPTION)

CHECKS := check check-host check-lint check-vm check-cable check-shutdown check-rails-short \
	check-debug check-endurance check-full check-short check-kernels check-arm64 check-server \
	check-server-endurance check-rds check-packages
# With SIZE=short, check-debug runs what continuous integration runs on the debug kernel.
DEBUG_CHECKS_full := debug-full
DEBUG_CHECKS_short := debug-short debug-rds
DEBUG_CHECKS_ := debug iwarp iwarp-server
DEBUG_CHECKS = $(or $(DEBUG_CHECKS_$(SIZE)),$(error SIZE is short or full))
# With UPSTREAM=1, check-debug runs only these parts, and the client has the patches of
# Documentation/upstream.
ifdef UPSTREAM
ifdef SIZE
$(error UPSTREAM=1 has no SIZE)
endif
DEBUG_CHECKS := --upstream debug-work debug-faults debug-server iwarp
endif
# With DEBUG=1, check-rds runs only the part debug-rds-faults, on the debug kernel.
RDS_CHECKS := $(if $(DEBUG),debug-rds-faults,rds)
.PHONY: $(CHECKS)
$(CHECKS):
	$(LAB) check $(KERNEL_OPTION) \
		$(patsubst check,all,$(patsubst debug,$(DEBUG_CHECKS),\
		$(patsubst rds,$(RDS_CHECKS),$(patsubst check-%,%,$@))))

# PROVIDER (siw or mixed) and DEBUG=1 (the debug kernel) leave out the cases with 1 or 16
# connections. PROVIDER runs only NFSv4.2. DEBUG=1 without PROVIDER runs NFSv3 and NFSv4.2. With
# SERVER=ours, the server uses our module.
RAILS_SMALL := $(if $(PROVIDER),[a-z_]*4? vers=4\.2,$(if $(DEBUG),[a-z_]*[46]? vers=(3|4\.2)))
.PHONY: check-rails
check-rails:
	$(LAB) run $(KERNEL_OPTION) --rails 2 $(if $(PROVIDER),--provider $(PROVIDER)) \
		$(if $(DEBUG),--debug) $(if $(SERVER),--server $(SERVER)) --timeout 5400 -- \
		./selftests/run --filter '^rails\.$(RAILS_SMALL)' --vers 3,4.0,4.2

.PHONY: check-programs
check-programs:
	$(LAB) programs $(KERNEL_OPTION)

.PHONY: check-mutants
check-mutants:
	$(LAB) mutants $(KERNEL_OPTION)

# CLIENT is ours (the default), intree or both. DEBUG=1 selects the debug kernel. RAILS=1 makes
# mounts over two cables.
.PHONY: torture
torture:
	$(LAB) torture $(KERNEL_OPTION) $(if $(CLIENT),--client $(CLIENT)) $(if $(DEBUG),--debug) \
		$(if $(RAILS),--rails) $(if $(CPUS),--cpus $(CPUS)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

# Counts instructions. Uses rustc and valgrind of this machine if both are installed, otherwise
# those of the lab.
.PHONY: bench-host
bench-host:
	$(if $(and $(shell command -v rustc),$(shell command -v valgrind)),,$(LAB) exec )tools/bench-host

.PHONY: count
count:
	$(LAB) count $(KERNEL_OPTION)

.PHONY: bench bench-check
bench bench-check:
	$(LAB) $@ $(KERNEL_OPTION) $(BENCH)
	$(if $(filter bench,$@)$(BENCH),,$(LAB) $@ $(KERNEL_OPTION) --server)

# Uses Sphinx of this machine if it is installed, otherwise Sphinx of the lab. Because of -E, Sphinx
# reads all pages again, and so repeats all warnings.
.PHONY: htmldocs
htmldocs:
	$(if $(shell command -v sphinx-build),,$(LAB) exec -- )sphinx-build -E -W --keep-going -q \
		-b html -d build/doctrees Documentation build/html

.PHONY: rust-analyzer doc
rust-analyzer doc:
	$(LAB) $@ $(KERNEL_OPTION)

.PHONY: help
help:
	@echo 'Build (needs root and mmdebstrap; the result is build/RELEASE/xprtrdma_rs.ko):'
	@echo '  make                          for the newest complete stock kernel 7.3'
	@echo '  make KERNEL=7.2               for the newest of a series, or one release'
	@echo '  make modules KDIR=DIR         with your tools, for headers with Rust metadata or your own tree'
	@echo '  make CLIPPY=1                 the same with clippy'
	@echo "  make server                   the server's module, in build/RELEASE-server"
	@echo '  make rds                      the module of RDS, in build/RELEASE-rds'
	@echo '  make modules_install          into $$INSTALL_MOD_PATH/lib/modules'
	@echo '  make deb                      Debian packages, beside the module'
	@echo '  make rpm                      packages for RPM and DKMS, in build/rpm'
	@echo '  make clean'
	@echo '  make rust-analyzer            writes rust-project.json'
	@echo "  make doc                      the crates' documentation, in build/doc"
	@echo '  make htmldocs                 the pages of Documentation as HTML, in build/html'
	@echo
	@echo 'Try (in virtual machines):'
	@echo '  make demo                     build, mount, copy, compare, report'
	@echo '  make demo-rails               over two cables, of which one is cut amid a copy'
	@echo '  make demo-server              with our module in the server: both clients, then both ways'
	@echo '  make demo-rds                 RDS: the promises of rds-rdma(7), ours and in-tree'
	@echo '  make demo-v2                  NFS over version two of RPC-over-RDMA, with a capture'
	@echo '  make shell                    a shell in a client with the mount made'
	@echo '  tools/lab --help              everything else'
	@echo
	@echo 'Check (the last line reads: N passed, N failed, N skipped):'
	@echo '  make check                    host tests, lints, tests of all modules in the machines, the cable, a restart, rails'
	@echo '  make check-debug              the same tests on a debug kernel, over RoCE and iWARP (SIZE=full, SIZE=short; UPSTREAM=1)'
	@echo '  make check-short              build and short tests on one kernel, such as KERNEL=7.3.4+deb13-rt-amd64'
	@echo '  make check-kernels            that on every kernel series of the archive, and on a real-time kernel'
	@echo '  make check-arm64              build and data tests on arm64, emulated, with 4k and with 16k pages'
	@echo '  make check-server             our modules in both machines, and clients that break the rules'
	@echo '  make check-rds                RDS: our module with itself and with the in-tree one (DEBUG=1: faults)'
	@echo '  make check-packages           an installed Debian: DKMS, an upgrade of the kernel, fall-back, removal'
	@echo '  make check-full               the selftests in full size on the stock kernel (two hours)'
	@echo '  make check-endurance          100 lives, 1500 broken connections on the debug kernel (half an hour)'
	@echo '  make check-server-endurance   lives of our server there: 100 listeners, 100 loads, 1500 connections'
	@echo '  make check-host, check-lint, check-vm, check-shutdown, check-rails-short'
	@echo '                                one part of make check'
	@echo '  make check-cable              captures of both clients (make check captures ours)'
	@echo '  make check-rails              mounts over two cables that fail in many ways (PROVIDER=siw|mixed, DEBUG=1: small; SERVER=ours)'
	@echo "  make check-programs           other people's programs, beside the in-tree client (an hour)"
	@echo '  make check-mutants            faults planted in the module: a test notices each (an hour)'
	@echo '  make torture MINUTES=30 SEED=1  faults at random times (CLIENT=ours|intree|both, DEBUG=1, RAILS=1)'
	@echo '  make bench-host               instructions to plan, encode and judge an RPC'
	@echo '  make count                    work requests per operation, ours and in-tree'
	@echo '  make bench                    elapsed time and exact counts, ours and in-tree (an hour)'
	@echo '  make bench BENCH=--help       its options'
	@echo '  make bench-check              fails when an exact count of ours rose, or misses a goal'
