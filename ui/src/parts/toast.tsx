// Short words about what was just done. They are read aloud, and go by themselves.
import { useSyncExternalStore } from 'react';
import { sentence, type Trouble } from './failure.tsx';

interface Toast {
  id: number;
  text: string;
  bad: boolean;
}

let toasts: readonly Toast[] = [];
let last = 0;
const listeners = new Set<() => void>();

function set(next: readonly Toast[]) {
  toasts = next;
  for (const listener of listeners) listener();
}

export function say(text: string, bad = false) {
  last += 1;
  const id = last;
  set([...toasts.slice(-3), { id, text, bad }]);
  setTimeout(() => set(toasts.filter(toast => toast.id !== id)), bad ? 9000 : 4500);
}

export function sayTrouble(trouble: Trouble) {
  say(
    trouble.hint ? `${sentence(trouble.detail)} ${sentence(trouble.hint)}` : sentence(trouble.detail),
    true,
  );
}

function subscribe(listener: () => void) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function Toasts() {
  const shown = useSyncExternalStore(subscribe, () => toasts);
  return (
    <div className="toasts" role="status" aria-live="polite">
      {shown.map(toast => (
        <div key={toast.id} className={`toast ${toast.bad ? 'bad' : ''}`}>
          {toast.text}
        </div>
      ))}
    </div>
  );
}
