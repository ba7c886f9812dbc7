// SPDX-License-Identifier: GPL-2.0

//! The sizes of a connection's queues.

use xprtrdma_proto::conn::{
    max_payload,
    pages_of,
    QueueDemand,
    QueueLimits,
    QueueSizes,
    MAX_PAYLOAD, //
};

/// The maximum number of concurrent callbacks that the module allows.
const CALLBACKS: u16 = 16;

fn sizes(limits: (u32, u32), slots: usize, send_size: usize) -> QueueSizes {
    let (queue_wrs, completions) = limits;
    QueueSizes::new(
        &QueueLimits {
            queue_wrs,
            completions,
            fences: false,
        },
        &QueueDemand {
            slots,
            callbacks: CALLBACKS,
            send_size,
        },
    )
}

#[test]
fn queues_are_as_large_as_the_calls_need_and_the_device_allows() {
    // Each row contains the device's limits on work requests and on completions, the number of
    // slots, and the expected results. The results are the credits, the length of the send queue,
    // the number of Receives, and the size of a batch.
    let table = [
        ((32_768, 4_194_303), 128, (128, 544, 144, 18)),
        ((32_768, 4_194_303), 4, (4, 172, 20, 2)),
        ((32_768, 4_194_303), 4096, (4096, 12_448, 4112, 32)),
        // The length of the device's queues limits the sizes in the next two rows.
        ((256, 4_194_303), 128, (128, 255, 144, 18)),
        ((128, 4_194_303), 128, (93, 127, 109, 18)),
        // The length of the device's completion queues limits the sizes in the next row.
        ((32_768, 256), 128, (93, 127, 109, 18)),
        // The next devices have very small queues. The result still allows one call, although such
        // a device may refuse to create the queue pair.
        ((16, 16), 128, (1, 7, 17, 18)),
        ((0, 0), 128, (1, 0, 17, 18)),
        ((0, 0), 0, (1, 0, 17, 2)),
        // Even with the largest arguments no number overflows.
        (
            (u32::MAX, u32::MAX),
            usize::MAX,
            (65_519, 196_717, u16::MAX, 32),
        ),
    ];
    for (limits, slots, expected) in table {
        let found = sizes(limits, slots, 4096);
        let found = (
            found.credits,
            found.send_wrs,
            found.recv_count,
            found.recv_batch,
        );
        assert_eq!(found, expected, "{limits:?} {slots}");
    }
}

#[test]
fn the_send_ring_holds_four_messages_at_least() {
    let table = [
        (1024, 16 << 10, 4 << 10),
        (4096, 64 << 10, 16 << 10),
        (16_384, 256 << 10, 64 << 10),
        (32_768, 256 << 10, 128 << 10),
        (65_536, 256 << 10, 256 << 10),
        (131_072, 512 << 10, 512 << 10),
    ];
    for (send_size, ring, least) in table {
        let found = sizes((32_768, 65_536), 128, send_size);
        assert_eq!((found.send_bytes, found.least_send_bytes), (ring, least));
        // The longest message needs 33 work requests: sixteen registrations for each of two chunks,
        // and the Send.
        assert_eq!(found.message_wrs, 33);
    }
    assert_eq!(sizes((9, 9), 1, usize::MAX).send_bytes, usize::MAX);
}

#[test]
fn a_fence_for_each_message_finds_room() {
    let demand = QueueDemand {
        slots: 128,
        callbacks: CALLBACKS,
        send_size: 4096,
    };
    let [plain, fenced] = [false, true].map(|fences| {
        let limits = QueueLimits {
            queue_wrs: 32_768,
            completions: 65_536,
            fences,
        };
        QueueSizes::new(&limits, &demand)
    });
    assert_eq!(fenced.send_wrs, plain.send_wrs + plain.credits);
    assert_eq!(fenced.message_wrs, plain.message_wrs + 1);
    assert_eq!(fenced.recv_count, plain.recv_count);
}

// covers: BC-07
#[test]
fn no_queue_is_larger_than_the_device_allows() {
    // The loops begin at the smallest device limits that allow one call and all callbacks.
    for queue_wrs in 40..600 {
        for completions in (80..1300).step_by(7) {
            for slots in [1, 4, 16, 128, 4096] {
                let found = sizes((queue_wrs, completions), slots, 4096);
                let receives = u32::from(found.recv_count) + u32::from(found.recv_batch);
                // One additional entry in each queue is reserved for the work request that drains
                // the queue.
                assert!(found.send_wrs < queue_wrs);
                let small = slots > 100 && queue_wrs.min(completions / 2) < 51;
                assert!(receives < queue_wrs || small);
                assert!(found.send_wrs + receives + 2 <= completions || small);
                assert_eq!(
                    u32::from(found.recv_count),
                    found.credits + u32::from(CALLBACKS)
                );
                assert!(found.credits as usize <= slots);
            }
        }
    }
}

#[test]
fn regions_hold_as_much_whatever_the_size_of_a_page() {
    let table = [
        (257, 4096, 257),
        (257, 16_384, 65),
        (257, 65_536, 17),
        (17, 16_384, 5),
        (16, 16_384, 4),
        (1, 65_536, 1),
        (0, 4096, 1),
        (1025, 4096, 1025),
        (1025, 65_536, 65),
        (u32::MAX, 1, u32::MAX),
        (3, 0, 12_288),
    ];
    for (units, page_size, pages) in table {
        assert_eq!(pages_of(units, page_size), pages, "{units} on {page_size}");
    }
    // With the default value of the module parameter `region_pages` (257), one region holds the
    // data of the largest request. With a smaller value of at least 17, the data fit into one chunk
    // of several regions.
    for page_size in [4096, 16_384, 65_536] {
        let found = sizes((32_768, 65_536), 128, 4096);
        assert_eq!(found.regions(pages_of(257, page_size), page_size), 256);
        assert_eq!(max_payload(pages_of(17, page_size), page_size), MAX_PAYLOAD);
        assert!(max_payload(pages_of(16, page_size), page_size) < MAX_PAYLOAD);
    }
}

#[test]
fn regions_are_enough_for_two_chunks_of_each_call() {
    let found = sizes((32_768, 65_536), 128, 4096);
    // Columns: pages in a region, size of a page; then the expected number of regions, and payload
    // of one chunk.
    let table = [
        (257, 4096, 256, MAX_PAYLOAD),
        (256, 4096, 512, MAX_PAYLOAD),
        (64, 4096, 5 * 256, MAX_PAYLOAD),
        (16, 4096, 17 * 256, 255 * 4096),
        (1, 4096, 257 * 256, 15 * 4096),
        (0, 4096, 257 * 256, 0),
        (257, 16_384, 256, MAX_PAYLOAD),
        (65, 16_384, 256, MAX_PAYLOAD),
        (64, 16_384, 512, MAX_PAYLOAD),
        (4, 16_384, 17 * 256, 63 * 16_384),
        (1, 16_384, 65 * 256, 15 * 16_384),
        (17, 65_536, 256, MAX_PAYLOAD),
        (16, 65_536, 512, MAX_PAYLOAD),
        (1, 65_536, 17 * 256, 15 * 65_536),
        (u32::MAX, 65_536, 256, MAX_PAYLOAD),
    ];
    for (pages, page_size, regions, payload) in table {
        assert_eq!(found.regions(pages, page_size), regions, "{pages}");
        assert_eq!(max_payload(pages, page_size), payload, "{pages}");
    }
}
