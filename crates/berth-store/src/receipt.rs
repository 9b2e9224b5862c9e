//! Answers that come later.

use crate::StoreError;
use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

/// The answer to a write, given once it is durable. A thread may [`wait`](Receipt::wait) for it; a task of any executor
/// may `.await` it.
#[must_use = "a write is durable only when its receipt says so"]
pub struct Receipt<T> {
    slot: Arc<Slot<T>>,
}

impl<T> Receipt<T> {
    /// Blocks until the answer is there.
    pub fn wait(self) -> Result<T, StoreError> {
        let mut state = self.slot.lock();
        loop {
            if let Some(answer) = state.answer.take() {
                return answer;
            }
            state = self.slot.answered.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// An answer that is there already.
    pub(crate) fn ready(answer: Result<T, StoreError>) -> Self {
        let (promise, receipt) = promise();
        promise.keep(answer);
        receipt
    }
}

impl<T> Future for Receipt<T> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.slot.lock();
        match state.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T> fmt::Debug for Receipt<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").finish_non_exhaustive()
    }
}

/// The writer's end of a receipt. Dropped without an answer, as by a panic, it answers that the store is closed.
pub(crate) struct Promise<T> {
    slot: Option<Arc<Slot<T>>>,
}

impl<T> Promise<T> {
    pub(crate) fn keep(mut self, answer: Result<T, StoreError>) {
        self.answer(answer);
    }

    fn answer(&mut self, answer: Result<T, StoreError>) {
        let Some(slot) = self.slot.take() else { return };
        let waker = {
            let mut state = slot.lock();
            state.answer = Some(answer);
            state.waker.take()
        };
        slot.answered.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.answer(Err(StoreError::Closed));
    }
}

/// A promise and the receipt that waits for it.
pub(crate) fn promise<T>() -> (Promise<T>, Receipt<T>) {
    let state = Mutex::new(State { answer: None, waker: None });
    let slot = Arc::new(Slot { state, answered: Condvar::new() });
    (Promise { slot: Some(Arc::clone(&slot)) }, Receipt { slot })
}

struct Slot<T> {
    state: Mutex<State<T>>,
    answered: Condvar,
}

struct State<T> {
    answer: Option<Result<T, StoreError>>,
    waker: Option<Waker>,
}

impl<T> Slot<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nothing is half done while it is held, so a panic elsewhere leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl std::task::Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn a_task_is_woken_once_when_the_answer_comes() {
        let (promise, mut receipt) = promise::<u32>();
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        assert!(Pin::new(&mut receipt).poll(&mut context).is_pending());
        assert_eq!(wakes.0.load(SeqCst), 0);
        promise.keep(Ok(7));
        assert_eq!(wakes.0.load(SeqCst), 1);
        assert!(matches!(Pin::new(&mut receipt).poll(&mut context), Poll::Ready(Ok(7))));
    }

    #[test]
    fn a_broken_promise_is_an_answer() {
        let (promise, receipt) = promise::<u32>();
        drop(promise);
        assert!(matches!(receipt.wait(), Err(StoreError::Closed)));
    }

    #[test]
    fn a_thread_gets_the_answer_it_waits_for() {
        let (promise, receipt) = promise::<u32>();
        let waiting = std::thread::spawn(move || receipt.wait());
        promise.keep(Ok(7));
        assert!(matches!(waiting.join().expect("it does not panic"), Ok(7)));
    }
}
