// All workloads: found, sorted, looked at, acted on.
import { useCallback, useMemo, useState } from 'react';
import type { Workload, WorkloadRequest } from '../api/types.ts';
import { csv, save } from '../model/csv.ts';
import { plural } from '../model/format.ts';
import { loadOlder } from '../model/live.ts';
import { useMay } from '../model/may.ts';
import { go, here, usePlace } from '../model/router.ts';
import { isFinal, isPlaced, isWaiting } from '../model/status.ts';
import { useKnown } from '../model/store.ts';
import { CheckField } from '../parts/field.tsx';
import { Popover } from '../parts/menu.tsx';
import { Search } from '../parts/search.tsx';
import { Button, Copyable, Empty } from '../parts/small.tsx';
import { type Sort, sorted, Table } from '../parts/table.tsx';
import { Submit } from './submit.tsx';
import { Bulk, CHOICE, useChosen } from './workload-bulk.tsx';
import { ALL_COLUMNS } from './workload-columns.tsx';
import { WorkloadDrawer } from './workload-drawer.tsx';

const SHOWS: { id: string; title: string; fits: (workload: Workload) => boolean }[] = [
  { id: '', title: 'Active', fits: workload => !isFinal(workload.status) },
  { id: 'running', title: 'Running', fits: isPlaced },
  { id: 'pending', title: 'Pending', fits: isWaiting },
  { id: 'finished', title: 'Finished', fits: workload => isFinal(workload.status) },
  { id: 'all', title: 'All', fits: () => true },
];

const COLUMNS_KEPT = 'berth.columns';
const keyOf = (workload: Workload) => workload.id;

function matches(workload: Workload, words: string[]) {
  const text = [
    workload.name,
    workload.project,
    workload.user,
    workload.kind,
    workload.status,
    workload.request.image,
    ...workload.tasks.map(task => task.node),
  ]
    .join(' ')
    .toLowerCase();
  return words.every(word => text.includes(word));
}

function useColumns(): [Set<string>, (id: string, shown: boolean) => void] {
  const [shown, setShown] = useState(() => {
    const kept = localStorage.getItem(COLUMNS_KEPT);
    const ids = kept?.split(',') ?? ALL_COLUMNS.filter(column => !column.extra).map(column => column.id);
    return new Set(ids);
  });
  const set = (id: string, is: boolean) => {
    const next = new Set(shown);
    if (is) next.add(id);
    else next.delete(id);
    localStorage.setItem(COLUMNS_KEPT, [...next].join(','));
    setShown(next);
  };
  return [shown, set];
}

export default function Workloads() {
  const place = usePlace();
  const may = useMay();
  const all = useKnown(known => known.workloads);
  const hasOlder = useKnown(known => known.hasOlder);
  const [shownColumns, setColumn] = useColumns();
  const [submitting, setSubmitting] = useState<WorkloadRequest | 'new' | null>(null);
  const show = SHOWS.find(show => show.id === (place.query.get('show') ?? '')) ?? SHOWS[0]!;
  const text = place.query.get('q') ?? '';
  const project = place.query.get('project') ?? '';
  const user = place.query.get('user') ?? '';
  const node = place.query.get('node') ?? '';
  const onlyIdle = place.query.get('idle') === 'yes';
  const order = place.query.get('sort') ?? '-submitted';
  const sort: Sort = useMemo(() => ({ by: order.replace(/^-/, ''), down: order.startsWith('-') }), [order]);

  const shown = useMemo(() => ALL_COLUMNS.filter(column => shownColumns.has(column.id)), [shownColumns]);
  const rows = useMemo(() => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (workload: Workload) =>
      show.fits(workload) &&
      (project === '' || workload.project === project) &&
      (user === '' || workload.user === user) &&
      (node === '' || workload.tasks.some(task => task.node === node)) &&
      (!onlyIdle || workload.idle_since != null) &&
      (words.length === 0 || matches(workload, words));
    return sorted([...all.values()].filter(fits), ALL_COLUMNS, sort);
  }, [all, show, text, project, user, node, onlyIdle, sort]);

  const picked = useChosen(rows);
  const columns = useMemo(() => (may.somewhere('own-work') ? [CHOICE, ...shown] : shown), [may, shown]);
  const people = useMemo(() => [...new Set([...all.values()].map(workload => workload.user))].sort(), [all]);
  const projects = useKnown(known => known.projects);
  const id = place.parts[1] === undefined ? null : Number(place.parts[1]);
  const close = useCallback(() => go(here('/workloads')), []);
  const open = useCallback((workload: Workload) => go(here(`/workloads/${workload.id}`)), []);
  const set = (query: Record<string, string | null>) => go(here(null, query), 'replace');
  const isFiltered =
    text !== '' || project !== '' || user !== '' || node !== '' || onlyIdle || show.id !== '';
  const file = () =>
    save(
      'workloads.csv',
      csv(
        shown.map(column => column.title),
        rows.map(row => shown.map(column => column.value(row))),
      ),
    );

  return (
    <div className="page fixed">
      <div className="page-head">
        <h1>Workloads</h1>
        <span className="dim" aria-live="polite">
          {plural(rows.length, 'workload')}
        </span>
        <span className="room" />
        {may.somewhere('submit') && (
          <Button kind="primary" icon="plus" onClick={() => setSubmitting('new')}>
            Submit
          </Button>
        )}
      </div>
      <div className="page-head">
        <Search label="Search workloads" hint="Search  (press /)" text={text} />
        <fieldset className="segments" aria-label="Which workloads">
          {SHOWS.map(option => (
            <button
              key={option.id}
              type="button"
              aria-pressed={option === show}
              onClick={() => set({ show: option.id })}
            >
              {option.title}
            </button>
          ))}
        </fieldset>
        <select aria-label="Project" value={project} onChange={event => set({ project: event.target.value })}>
          <option value="">All projects</option>
          {projects.map(project => (
            <option key={project.name}>{project.name}</option>
          ))}
        </select>
        <select aria-label="User" value={user} onChange={event => set({ user: event.target.value })}>
          <option value="">All users</option>
          {people.map(name => (
            <option key={name}>{name}</option>
          ))}
        </select>
        {(node !== '' || onlyIdle) && (
          <Button small icon="close" onClick={() => set({ node: null, idle: null })}>
            {onlyIdle ? 'idle GPUs' : `on ${node}`}
          </Button>
        )}
        <span className="room" />
        <span className="no-phone">
          <Popover title="Columns" icon="columns">
            {ALL_COLUMNS.map(column => (
              <CheckField
                key={column.id}
                label={column.title}
                checked={shownColumns.has(column.id)}
                onChange={shown => setColumn(column.id, shown)}
              />
            ))}
          </Popover>
        </span>
        <Button icon="file" onClick={file}>
          CSV
        </Button>
      </div>
      {picked.length > 0 && <Bulk picked={picked} />}
      <section className="panel fills">
        <Table
          label="Workloads"
          rows={rows}
          columns={columns}
          keyOf={keyOf}
          sort={sort}
          onSort={next => set({ sort: `${next.down ? '-' : ''}${next.by}` })}
          onOpen={open}
          open={id}
          empty={isFiltered ? <NoMatch text={text} /> : <NothingYet submits={may.somewhere('submit')} />}
        />
        {hasOlder && (show.id === 'finished' || show.id === 'all') && (
          <div className="table-foot">
            <Button small onClick={() => void loadOlder()}>
              Load older
            </Button>
          </div>
        )}
      </section>
      {id !== null && (
        <WorkloadDrawer
          key={id}
          id={id}
          onClose={close}
          onClone={request => setSubmitting({ ...request, name: undefined, command_line: undefined })}
        />
      )}
      {submitting !== null && (
        <Submit from={submitting === 'new' ? null : submitting} onClose={() => setSubmitting(null)} />
      )}
    </div>
  );
}

function NoMatch({ text }: { text: string }) {
  return (
    <Empty title={text === '' ? 'No workloads match these filters' : `No workloads match “${text}”`}>
      <Button onClick={() => go('/workloads')}>Show all active workloads</Button>
    </Empty>
  );
}

function NothingYet({ submits }: { submits: boolean }) {
  const hasGpus = useKnown(known => (known.totals?.gpus ?? 0) > 0);
  return (
    <Empty title="No active workloads">
      {submits && (
        <>
          <p>Submit one here, or type it; this small trainer needs no image of your own:</p>
          <Copyable text={`berth submit hello -g ${hasGpus ? 1 : 0} -i berth/quickstart`} />
        </>
      )}
    </Empty>
  );
}
