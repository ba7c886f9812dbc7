// SPDX-License-Identifier: GPL-2.0

//! Checks that the object code contains no way to panic.
//!
//! A panic in the kernel is a `BUG()`. The test compiles the core with optimisation and overflow
//! checks, as for the kernel. Then it searches the object for references to functions that panic.

#![allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used
)]

use std::{
    path::{
        Path,
        PathBuf, //
    },
    process::Command, //
};

/// Compiles the crate with this root file and returns the object file.
fn compile(root: &Path, name: &str, more: &[&str]) -> Vec<u8> {
    // Each crate needs its own working directory, because the compiler's temporary files are named
    // after the crate.
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let dir = dir.join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let object = dir.join("core.o");
    let output = Command::new("rustc")
        .current_dir(&dir)
        .args(["--edition", "2021", "--crate-type", "rlib"])
        .args(["--crate-name", "xprtrdma_proto"])
        .args(["-O", "-C", "overflow-checks=on", "-C", "panic=abort"])
        .args(["-C", "codegen-units=1", "-C", "debug-assertions=off"])
        .args(more)
        .arg(format!("--emit=obj={}", object.display()))
        .arg(root)
        .output()
        .expect("rustc runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let bytes = std::fs::read(&object).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    bytes
}

fn number(bytes: &[u8], at: usize, len: usize) -> usize {
    let bytes = bytes[at..at + len].iter().rev();
    bytes.fold(0, |value, &byte| (value << 8) | usize::from(byte))
}

fn name(bytes: &[u8], at: usize) -> String {
    let rest = &bytes[at..];
    let end = rest.iter().position(|&byte| byte == 0).unwrap();
    String::from_utf8_lossy(&rest[..end]).into_owned()
}

/// A section of a 64-bit little-endian ELF object.
struct Section {
    name: String,
    kind: usize,
    offset: usize,
    size: usize,
    link: usize,
}

fn sections(elf: &[u8]) -> Vec<Section> {
    assert_eq!(elf[..6], [0x7f, b'E', b'L', b'F', 2, 1]);
    let table = number(elf, 0x28, 8);
    let entry = number(elf, 0x3a, 2);
    let count = number(elf, 0x3c, 2);
    let names = number(elf, table + entry * number(elf, 0x3e, 2) + 0x18, 8);
    (0..count)
        .map(|index| {
            let at = table + entry * index;
            Section {
                name: name(elf, names + number(elf, at, 4)),
                kind: number(elf, at + 4, 4),
                offset: number(elf, at + 0x18, 8),
                size: number(elf, at + 0x20, 8),
                link: number(elf, at + 0x28, 4),
            }
        })
        .collect()
}

const SYMBOLS: usize = 2;
const RELOCATIONS: usize = 4;

/// Returns every name that the object refers to, with the section that contains the reference.
fn references(elf: &[u8]) -> Vec<(String, String)> {
    let sections = sections(elf);
    let symbols = sections.iter().find(|s| s.kind == SYMBOLS).unwrap();
    let strings = sections[symbols.link].offset;
    let mut found = Vec::new();
    for section in sections.iter().filter(|s| s.kind == RELOCATIONS) {
        for at in (section.offset..section.offset + section.size).step_by(24) {
            let symbol = number(elf, at + 12, 4);
            let symbol = number(elf, symbols.offset + symbol * 24, 4);
            found.push((section.name.clone(), name(elf, strings + symbol)));
        }
    }
    found
}

/// Returns the references to functions that panic.
fn panics(elf: &[u8]) -> Vec<(String, String)> {
    let mut found = references(elf);
    found.retain(|(_, symbol)| symbol.contains("panic") || symbol.contains("_fail"));
    found
}

fn core_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("xprtrdma_proto.rs")
}

#[test]
fn the_object_refers_to_no_panicking_function() {
    let elf = compile(&core_root(), "plain", &[]);
    assert!(!references(&elf).is_empty());
    assert_eq!(panics(&elf), []);
}

#[test]
fn nor_does_any_function_that_is_inlined_elsewhere() {
    // Functions marked inline leave no code in an ordinary object file. The compiler option
    // `link-dead-code` keeps these functions. The option also keeps methods of the standard
    // library's traits that are never called and may panic, so the test ignores those methods.
    let elf = compile(&core_root(), "all", &["-C", "link-dead-code"]);
    let mut found = panics(&elf);
    found.retain(|(section, _)| belongs_to_the_core(section));
    assert_eq!(found, []);
}

/// Returns true if `section` is a relocation section of a function of this crate. Returns false if
/// the function is from the standard library, and is only instantiated for a type of this crate.
/// The section's name contains the function's name.
fn belongs_to_the_core(section: &str) -> bool {
    let Some(ours) = section.find("xprtrdma_proto") else {
        return false;
    };
    // A function belongs to the first crate that its mangled name contains. Code that a trait
    // provides is an exception: the mangled path of such code begins with the letter Y.
    let provided = section
        .split("Cs")
        .next()
        .is_some_and(|path| path.contains("NvY"));
    let foreign = section.find("4core").is_some_and(|core| core < ours);
    !provided && !foreign
}

#[test]
fn a_panic_would_be_found() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    for (index, body) in [
        "bytes[7]",
        "bytes.len() as u8 + 1",
        "*bytes.first().unwrap()",
    ]
    .into_iter()
    .enumerate()
    {
        let root = dir.join(format!("panics-{index}-{}.rs", std::process::id()));
        let source =
            format!("#![no_std] #[inline(never)] pub fn f(bytes: &[u8]) -> u8 {{ {body} }}");
        std::fs::write(&root, source).unwrap();
        let elf = compile(&root, &format!("panics-{index}"), &[]);
        std::fs::remove_file(&root).unwrap();
        assert!(!panics(&elf).is_empty());
        assert!(panics(&elf)
            .iter()
            .all(|(section, _)| belongs_to_the_core(section)));
    }
}
