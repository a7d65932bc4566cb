//! Doubts that are taken back, and those that stay.

use std::time::Duration;

use super::*;

/// Doubts of different origin, of which the last is taken back.
#[test]
fn a_doubt_that_is_taken_back_leaves_the_others() {
    let pair = Pair::new(&[A]);
    let (long, other): (&[TokenId], &[TokenId]) = (&[1, 2, 3, 4, 5, 6], &[1, 2, 9]);
    let at = |step: u64| START + Duration::from_secs(step);
    // Takes an update over; says how many blocks are sure then, and how many are there.
    let update = |step, update: Update<'_>| {
        pair.update(A, update, at(step));
        pair.check(&[long, other], at(step));
        let residents = residents(&pair.index, at(step));
        let sure = residents.iter().filter(|resident| !resident.is_doubtful);
        (sure.count(), residents.len())
    };
    let event = |step, event| update(step, Update::Events(&[event]));

    event(1, store(0, &long[..2], 0));
    assert_eq!(update(2, Update::Doubt), (0, 2));
    event(3, store(0, long, 2));
    // The fifth twice, and removed once: in doubt by itself.
    event(4, store(0, &long[..5], 4));
    assert_eq!(event(5, remove(0, &long[..5], 4)), (3, 6));
    // Twice at the very same time: told apart all the same.
    update(6, Update::Doubt);
    assert_eq!(event(6, store(0, other, 2)), (1, 7));
    update(6, Update::Doubt);
    assert_eq!(update(7, Update::Trust), (1, 7));
    assert_eq!(update(8, Update::Trust), (1, 7), "once");

    assert_eq!(event(9, store(0, long, 0)), (7, 7));
    update(10, Update::Doubt);
    event(11, remove(0, long, 5));
    assert_eq!(event(12, store(0, &long[..4], 3)), (1, 6));
    assert_eq!(update(13, Update::Trust), (6, 6));
    // What is sure again counts once.
    assert_eq!(event(14, remove(0, &long[..5], 4)), (5, 5));

    update(15, Update::Doubt);
    event(16, CacheEvent::Cleared);
    event(17, store(0, long, 0));
    assert_eq!(update(18, Update::Trust), (6, 6));
    update(19, Update::Doubt);
    let late = 19 + DOUBT_TTL.as_secs() + 1;
    assert_eq!(update(late, Update::Trust), (0, 0));
}

/// The view keeps the later doubt of such a block, which may not be the one taken back.
#[test]
fn a_doubt_is_taken_back_for_one_of_two_handles() {
    let tokens: &[TokenId] = &[1, 2, 3];
    for is_removed in [true, false] {
        let pair = Pair::new(&[A]);
        pair.event(A, store(1, tokens, 0));
        pair.event(A, store(2, tokens, 0));
        pair.update(A, Update::Doubt, Nanos(10));
        for (step, event) in
            [store(2, tokens, 0), store(2, tokens, 0), remove(2, tokens, 0)].into_iter().enumerate()
        {
            pair.update(A, Update::Events(&[event]), Nanos(20 + step as u64));
        }
        if is_removed {
            pair.update(A, Update::Events(&[remove(1, tokens, 1)]), Nanos(30));
        }
        pair.update(A, Update::Trust, Nanos(40));
        pair.check(&[tokens], Nanos(40));
        let residents = residents(&pair.index, Nanos(40));
        let sure = residents.iter().filter(|resident| !resident.is_doubtful);
        assert_eq!(sure.count(), if is_removed { 1 } else { 3 });
    }
}
