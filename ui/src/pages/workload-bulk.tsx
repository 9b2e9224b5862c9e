// Workloads that are chosen in the list, and what can be done to all of them at once.
import { useEffect, useMemo, useState, useSyncExternalStore } from 'react';
import type { Workload } from '../api/types.ts';
import { plural } from '../model/format.ts';
import { command } from '../model/live.ts';
import { useMay } from '../model/may.ts';
import { isFinal } from '../model/status.ts';
import { Confirm } from '../parts/dialog.tsx';
import { trouble } from '../parts/failure.tsx';
import { Button } from '../parts/small.tsx';
import type { Column } from '../parts/table.tsx';
import { say, sayTrouble } from '../parts/toast.tsx';

/** Requests that are under way at once. */
const AT_ONCE = 4;

/** What is chosen is kept beside the table, so that an update of one row, or of what is chosen, repaints nothing else. */
let chosen: ReadonlySet<number> = new Set();
let listed: readonly Workload[] = [];
const listeners = new Set<() => void>();

function subscribe(listener: () => void) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function choose(next: ReadonlySet<number>) {
  chosen = next;
  for (const listener of listeners) listener();
}

function toggle(id: number) {
  const next = new Set(chosen);
  if (!next.delete(id)) next.add(id);
  choose(next);
}

const isAll = () => chosen.size > 0 && listed.length > 0 && listed.every(row => chosen.has(row.id));

/** The rows of a list that are chosen. Nothing stays chosen when one leaves the page. */
export function useChosen(rows: readonly Workload[]): readonly Workload[] {
  const known = useSyncExternalStore(subscribe, () => chosen);
  useEffect(() => {
    listed = rows;
    if (chosen.size > 0) choose(new Set(chosen));
  }, [rows]);
  useEffect(() => () => choose(new Set()), []);
  return useMemo(() => (known.size === 0 ? NONE : rows.filter(row => known.has(row.id))), [rows, known]);
}

const NONE: readonly Workload[] = [];

function ChooseAll() {
  const all = useSyncExternalStore(subscribe, isAll);
  return (
    <input
      type="checkbox"
      aria-label="Select all workloads that are listed"
      checked={all}
      onChange={() => choose(all ? new Set() : new Set(listed.map(row => row.id)))}
    />
  );
}

function Choose({ workload }: { workload: Workload }) {
  const is = useSyncExternalStore(subscribe, () => chosen.has(workload.id));
  return (
    <label className="choice">
      <input
        type="checkbox"
        aria-label={`Select ${workload.name}`}
        checked={is}
        onChange={() => toggle(workload.id)}
      />
    </label>
  );
}

/** The column of check boxes. */
export const CHOICE: Column<Workload> = {
  id: 'choice',
  title: 'Select',
  width: 48,
  phone: false,
  head: <ChooseAll />,
  show: row => <Choose workload={row} />,
  value: () => null,
};

type Deed = 'suspend' | 'resume' | 'delete';

const FITS: Record<Deed, (workload: Workload) => boolean> = {
  suspend: ({ status }) => !isFinal(status) && status !== 'Suspended' && status !== 'Terminating',
  resume: ({ status }) => status === 'Suspended',
  delete: ({ status }) => status !== 'Terminating' && status !== 'Deleted',
};

const DONE: Record<Deed, string> = { suspend: 'Suspending', resume: 'Resuming', delete: 'Deleting' };

export function Bulk({ picked }: { picked: readonly Workload[] }) {
  const onDone = () => choose(new Set());
  const may = useMay();
  const [deleting, setDeleting] = useState(false);
  const [busy, setBusy] = useState(false);
  const fit = (deed: Deed) => picked.filter(workload => FITS[deed](workload) && may.work(workload));
  const act = async (deed: Deed) => {
    setBusy(true);
    const left = fit(deed);
    const count = left.length;
    const failures: unknown[] = [];
    const work = async () => {
      for (let workload = left.pop(); workload; workload = left.pop())
        await command(
          deed === 'delete' ? 'DELETE' : 'POST',
          workload,
          deed === 'delete' ? '' : `/${deed}`,
        ).catch(error => failures.push(error));
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    setBusy(false);
    if (count > failures.length) say(`${DONE[deed]} ${plural(count - failures.length, 'workload')}`);
    if (failures.length > 0) sayTrouble(trouble(failures[0]));
    onDone();
  };
  const button = (deed: 'suspend' | 'resume', icon: 'pause' | 'play', text: string) => {
    const count = fit(deed).length;
    return (
      count > 0 && (
        <Button small icon={icon} disabled={busy} onClick={() => void act(deed)}>
          {text} {count}
        </Button>
      )
    );
  };
  const deletes = fit('delete').length;
  return (
    <section className="selected-bar" aria-label="Selected workloads">
      <b aria-live="polite">{picked.length} selected</b>
      {button('suspend', 'pause', 'Suspend')}
      {button('resume', 'play', 'Resume')}
      {deletes > 0 && (
        <Button small kind="danger" icon="trash" disabled={busy} onClick={() => setDeleting(true)}>
          Delete {deletes}
        </Button>
      )}
      <Button small kind="plain" onClick={onDone}>
        Clear selection
      </Button>
      {deleting && (
        <Confirm
          title={`Delete ${plural(deletes, 'workload')}?`}
          verb="Delete"
          onClose={() => setDeleting(false)}
          onConfirm={() => act('delete')}
        >
          <p>Those that run get SIGTERM, then are killed after their grace. They won't resume.</p>
        </Confirm>
      )}
    </section>
  );
}
