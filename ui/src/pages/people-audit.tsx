// What people did, and what was refused.
import { useCallback, useEffect, useMemo, useRef, useState } from 'react';
import { get, withQuery } from '../api/client.ts';
import type { AuditEntry, AuditList } from '../api/types.ts';
import { csv, save } from '../model/csv.ts';
import { go, here, usePlace } from '../model/router.ts';
import { useKnown } from '../model/store.ts';
import { sentence, type Trouble, TroubleNote, trouble } from '../parts/failure.tsx';
import { Ago, Button, Empty } from '../parts/small.tsx';
import { type Column, Table } from '../parts/table.tsx';

const PAGE = 200;
/** Entries that a file has at most. */
const FILE_MAX = 20_000;

interface Filter {
  user: string | undefined;
  project: string | undefined;
}

interface Found {
  by: Filter;
  entries: AuditEntry[];
  hasOlder: boolean;
}

/** The newest first; the server lists the oldest first. */
async function page(filter: Filter, before: number | undefined, limit = PAGE): Promise<AuditEntry[]> {
  const list = await get<AuditList>(withQuery('/audit', { ...filter, before, limit }));
  return list.items.reverse();
}

/** `POST /api/v1/workloads/{project}/{name}/suspend` in words that are short. What is done to a node is the end of its path. */
function deed(entry: AuditEntry): string {
  const [method = '', route = ''] = entry.action.split(' ');
  const path = route.replace('{action}', entry.target.split('/').at(-1) ?? '');
  const last = path.replace('/api/v1/', '').replaceAll(/\/?\{[^}]*\}/g, '');
  const known = WORDS[`${method} ${last}`];
  if (known) return known;
  const verb = { POST: 'create', PATCH: 'change', DELETE: 'delete', GET: 'open' }[method] ?? method;
  const [thing = '', what] = last.split('/');
  return what ? `${what} ${thing.replace(/s$/, '')}` : `${verb} ${thing.replace(/s$/, '')}`;
}

/** What would read oddly otherwise. */
const WORDS: Record<string, string> = {
  'POST session': 'sign in',
  'DELETE session': 'sign out',
  'POST session/links': 'make sign-in link',
  'POST roles': 'grant role',
  'POST roles/revoke': 'revoke role',
  'DELETE tokens': 'revoke token',
  'GET workloads/exec': 'open shell in workload',
  'GET workloads/attach': 'attach to workload',
  'GET workloads/connect': 'connect to workload',
  'POST workloads': 'submit workload',
};

/** Whoever went before the answer, or a server that ended, leaves no status. */
const mood = (entry: AuditEntry) => (entry.status === 0 ? 'still' : isRefused(entry) ? 'bad' : 'good');
const isRefused = (entry: AuditEntry) => entry.status >= 400;

/** What let somebody in. */
function byText(by: string | null | undefined): string | null {
  if (by == null) return null;
  return by === 'installation' ? 'token of the installation' : by;
}

const COLUMNS: Column<AuditEntry>[] = [
  { id: 'at', title: 'When', width: 135, show: entry => <Ago at={entry.at} />, value: entry => entry.at },
  {
    id: 'user',
    title: 'Who',
    width: 110,
    show: entry => entry.user ?? <span className="dim">{byText(entry.by) ?? 'unknown'}</span>,
    value: entry => entry.user ?? '',
  },
  {
    id: 'what',
    title: 'What',
    width: 200,
    show: entry => <span title={entry.action}>{deed(entry)}</span>,
    value: entry => entry.action,
  },
  {
    id: 'target',
    title: 'Target',
    width: 230,
    phone: false,
    show: entry => <span title={entry.target}>{entry.target.replace('/api/v1/', '')}</span>,
    value: entry => entry.target,
  },
  {
    id: 'project',
    title: 'Project',
    width: 100,
    phone: false,
    show: entry => entry.project ?? <span className="dim">–</span>,
    value: entry => entry.project ?? '',
  },
  {
    id: 'answer',
    title: 'Result',
    width: 160,
    show: entry => (
      <span
        className={`status ${mood(entry)}`}
        title={`HTTP ${entry.status}${entry.problem ? `: ${entry.problem}` : ''}`}
      >
        {entry.status === 0 ? 'unknown' : isRefused(entry) ? sentence(entry.problem ?? 'refused') : 'allowed'}
      </span>
    ),
    value: entry => entry.status,
  },
  {
    id: 'by',
    title: 'Signed in by',
    width: 110,
    phone: false,
    show: entry => byText(entry.by) ?? <span className="dim">–</span>,
    value: entry => entry.by ?? '',
  },
  {
    id: 'from',
    title: 'From',
    width: 100,
    phone: false,
    show: entry => entry.from,
    value: entry => entry.from,
  },
];

export function Audit() {
  const place = usePlace();
  const projects = useKnown(known => known.projects);
  const user = place.query.get('user') || undefined;
  const project = place.query.get('project') || undefined;
  const refused = place.query.get('refused') === 'yes';
  const [found, setFound] = useState<Found | null>(null);
  const [problem, setProblem] = useState<Trouble | null>(null);
  const filter = useMemo(() => ({ user, project }), [user, project]);
  // What another filter found is not shown under this one, however late it comes.
  const entries = found?.by === filter ? found.entries : null;
  const hasOlder = found?.by === filter && found.hasOlder;
  const wanted = useRef(filter);
  wanted.current = filter;
  const load = useCallback(
    async (known: AuditEntry[]) => {
      try {
        const more = await page(filter, known.at(-1)?.seq);
        if (wanted.current !== filter) return;
        setFound({ by: filter, entries: [...known, ...more], hasOlder: more.length === PAGE });
        setProblem(null);
      } catch (error) {
        if (wanted.current === filter) setProblem(trouble(error));
      }
    },
    [filter],
  );
  useEffect(() => void load([]), [load]);
  const file = async () => {
    const all = [...(entries ?? [])];
    try {
      for (let more = hasOlder; more && all.length < FILE_MAX; ) {
        const found = await page(filter, all.at(-1)?.seq, 1000);
        all.push(...found);
        more = found.length === 1000;
      }
      const kept = refused ? all.filter(isRefused) : all;
      save(
        'audit.csv',
        csv(
          ['number', ...COLUMNS.map(column => column.title.toLowerCase()), 'problem'],
          kept.map(entry => [entry.seq, ...COLUMNS.map(column => column.value(entry)), entry.problem]),
        ),
      );
    } catch (error) {
      setProblem(trouble(error));
    }
  };
  const set = (query: Record<string, string | null>) => go(here(null, query), 'replace');
  const shown = useMemo(
    () => (refused ? (entries ?? []).filter(isRefused) : (entries ?? [])),
    [entries, refused],
  );
  return (
    <>
      <div className="page-head">
        <input
          type="text"
          className="narrow"
          placeholder="User"
          aria-label="User"
          defaultValue={user ?? ''}
          onBlur={event => set({ user: event.target.value.trim() })}
          onKeyDown={event => {
            if (event.key === 'Enter') set({ user: event.currentTarget.value.trim() });
          }}
        />
        <select
          aria-label="Project"
          value={project ?? ''}
          onChange={event => set({ project: event.target.value })}
        >
          <option value="">All projects</option>
          {projects.map(one => (
            <option key={one.name}>{one.name}</option>
          ))}
        </select>
        <Button pressed={refused} onClick={() => set({ refused: refused ? null : 'yes' })}>
          Refused only
        </Button>
        <span className="room" />
        <Button onClick={() => void load([])}>Refresh</Button>
        <Button icon="file" onClick={() => void file()}>
          CSV
        </Button>
      </div>
      <TroubleNote of={problem} />
      {entries && (
        <section className="panel fills">
          <Table
            label="Audit"
            rows={shown}
            columns={COLUMNS}
            keyOf={entry => entry.seq}
            empty={<Empty title="No entries match" />}
          />
          {hasOlder && (
            <div className="table-foot">
              <Button small onClick={() => void load(entries)}>
                Load older
              </Button>
            </div>
          )}
        </section>
      )}
    </>
  );
}
