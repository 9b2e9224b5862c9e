// Why workloads wait. Asked when somebody looks, a few at a time, and again when something was decided since.
import { useEffect, useState } from 'react';
import { get, workloadPath } from '../api/client.ts';
import type { Why, Workload } from '../api/types.ts';
import { useKnown } from './store.ts';

const AT_ONCE = 3;
const known = new Map<number, { why: Why; decisions: number; turn: number }>();
let asked = 0;
const queue: (() => Promise<void>)[] = [];
let busy = 0;

function run(work: () => Promise<void>) {
  queue.push(work);
  drain();
}

function drain() {
  while (busy < AT_ONCE && queue.length > 0) {
    busy += 1;
    void queue.shift()!().finally(() => {
      busy -= 1;
      drain();
    });
  }
}

/** Why a workload waits: what was known last, until the newest answer is there. */
export function useWhy(workload: Workload, wanted = true): Why | null {
  const decisions = useKnown(state => state.decisions);
  const [, setAnswer] = useState(0);
  const id = workload.id;
  useEffect(() => {
    if (!wanted || known.get(id)?.decisions === decisions) return;
    let gone = false;
    // A burst of decisions is asked about once.
    const soon = setTimeout(() => {
      run(async () => {
        if (gone) return;
        asked += 1;
        const turn = asked;
        try {
          const why = await get<Why>(workloadPath(workload, '/why'));
          // An answer that comes after that of a later question says what was.
          if (turn < (known.get(id)?.turn ?? 0)) return;
          known.set(id, { why, decisions, turn });
          if (known.size > 500) known.delete(known.keys().next().value!);
          if (!gone) setAnswer(count => count + 1);
        } catch {
          // It is over, or the server is gone; the page says so elsewhere.
        }
      });
    }, 150);
    return () => {
      gone = true;
      clearTimeout(soon);
    };
  }, [id, workload, decisions, wanted]);
  return wanted ? (known.get(id)?.why ?? null) : null;
}
