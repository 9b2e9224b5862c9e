// What is set of a project or a department.
import { type ReactNode, useState } from 'react';
import { call } from '../api/client.ts';
import type { Department, Project, Warned } from '../api/types.ts';
import { quoted, seconds, time } from '../model/command.ts';
import { refresh } from '../model/live.ts';
import { useMay } from '../model/may.ts';
import { useKnown } from '../model/store.ts';
import { Dialog } from '../parts/dialog.tsx';
import { sentence, type Trouble, TroubleNote, trouble } from '../parts/failure.tsx';
import { SelectField, TextField } from '../parts/field.tsx';
import { Button, Copyable } from '../parts/small.tsx';
import { say } from '../parts/toast.tsx';

type Draft = Record<string, string>;

interface FieldKind {
  /** What the API calls it. */
  id: string;
  label: string;
  flag: string;
  hint?: string;
  placeholder?: string;
  kind: 'amount' | 'whole' | 'time' | 'labels';
}

const AMOUNTS: FieldKind[] = [
  { id: 'quota', label: 'Quota', flag: '--quota', kind: 'amount', hint: 'GPUs it can always have back' },
  {
    id: 'limit',
    label: 'Limit',
    flag: '--limit',
    kind: 'amount',
    hint: 'GPUs it never passes',
    placeholder: 'none',
  },
  {
    id: 'weight',
    label: 'Weight',
    flag: '--weight',
    kind: 'amount',
    hint: 'Its part of what is idle; 0 does not borrow',
    placeholder: 'its quota',
  },
  {
    id: 'rank',
    label: 'Rank',
    flag: '--rank',
    kind: 'whole',
    hint: 'Higher ranks are lent to first',
    placeholder: '0',
  },
];

const OF_PROJECTS: FieldKind[] = [
  {
    id: 'interactive_limit_secs',
    label: 'Interactive work ends after',
    flag: '--interactive-limit',
    kind: 'time',
    placeholder: 'never',
  },
  {
    id: 'time_limit_secs',
    label: 'Any work ends after',
    flag: '--time-limit',
    kind: 'time',
    placeholder: 'never',
  },
  {
    id: 'idle_limit_secs',
    label: 'Idle work is suspended after',
    flag: '--idle-limit',
    kind: 'time',
    placeholder: 'never',
  },
  {
    id: 'min_run_secs',
    label: 'Nothing is evicted before',
    flag: '--min-run',
    kind: 'time',
    placeholder: 'at any time',
  },
  {
    id: 'train_nodes',
    label: 'Nodes for training',
    flag: '--train-nodes',
    kind: 'labels',
    placeholder: 'any, or LABEL=VALUE',
  },
  {
    id: 'interactive_nodes',
    label: 'Nodes for interactive work',
    flag: '--interactive-nodes',
    kind: 'labels',
    placeholder: 'any, or LABEL=VALUE',
  },
];

function begin(fields: FieldKind[], settings: Record<string, unknown>): Draft {
  const draft: Draft = {};
  for (const field of fields) {
    const value = settings[field.id];
    if (value === undefined || value === null) draft[field.id] = '';
    else if (field.kind === 'time') draft[field.id] = value === 0 ? '' : time(value as number);
    else if (field.kind === 'labels') {
      draft[field.id] = Object.entries(value as Record<string, string[]>)
        .flatMap(([label, values]) => values.map(one => `${label}=${one}`))
        .join(' ');
    } else draft[field.id] = String(value);
  }
  return draft;
}

/** What changed, as settings; what is wrong, by field; and the words of the command. */
function lower(fields: FieldKind[], draft: Draft, before: Draft) {
  const settings: Record<string, unknown> = {};
  const unset: string[] = [];
  const problems: Record<string, string> = {};
  const words: string[] = [];
  for (const field of fields) {
    const text = (draft[field.id] ?? '').trim();
    if (text === (before[field.id] ?? '').trim()) continue;
    if (text === '') {
      unset.push(field.id);
      words.push('--unset', field.id);
      continue;
    }
    let value: unknown;
    if (field.kind === 'time') {
      value = seconds(text);
      if (value === null) problems[field.id] = 'A time such as 30m, 8h or 7d';
    } else if (field.kind === 'labels') {
      const labels: Record<string, string[]> = {};
      for (const word of text.split(/[\s,]+/)) {
        const [label, one] = word.split('=');
        if (!label || !one) problems[field.id] = 'Write LABEL=VALUE';
        else labels[label] = [...(labels[label] ?? []), one];
      }
      value = labels;
    } else {
      value = Number(text);
      if (!Number.isFinite(value) || (field.kind === 'amount' && (value as number) < 0))
        problems[field.id] = 'A number, such as 4';
    }
    settings[field.id] = value;
    words.push(field.flag, quoted(text));
  }
  if (unset.length > 0) settings.unset = unset;
  return { settings, problems, words };
}

function Shape(props: {
  noun: 'project' | 'department';
  name: string | null;
  fields: FieldKind[];
  settings: Record<string, unknown>;
  /** The field that names what it is part of. */
  above: { id: 'department' | 'parent'; label: string; options: string[]; none: boolean };
  more?: (field: (kind: FieldKind) => ReactNode) => ReactNode;
  onClose: () => void;
}) {
  const { noun, name, fields, above } = props;
  const [before] = useState(() => begin(fields, props.settings));
  const [draft, setDraft] = useState(before);
  const belongs = String(props.settings[above.id] ?? '');
  // Whoever sets things below a department only begins there.
  const [part, setPart] = useState(name === null && !above.none ? (above.options[0] ?? '') : belongs);
  const [newName, setNewName] = useState('');
  const [problem, setProblem] = useState<Trouble | null>(null);
  const [busy, setBusy] = useState(false);
  const { settings, problems, words } = lower(fields, draft, before);
  if (part !== belongs) {
    settings[above.id] = part;
    words.push(`--${above.id}`, part === '' ? "''" : quoted(part));
  }
  const line = [
    'berth',
    noun,
    name === null ? 'create' : 'update',
    quoted(name ?? (newName || 'NAME')),
    ...words,
  ].join(' ');
  const wrong = (id: string) => problems[id] ?? (problem?.field === id ? sentence(problem.detail) : null);
  const send = async () => {
    setProblem(null);
    if (Object.keys(problems).length > 0) return;
    setBusy(true);
    try {
      const path = `/${noun}s${name === null ? '' : `/${encodeURIComponent(name)}`}`;
      const { unset, ...plain } = settings;
      const body = name === null ? { ...plain, name: newName.trim() } : settings;
      const answer = await call<Warned<Project | Department>>(name === null ? 'POST' : 'PATCH', path, body);
      say([`${answer.body.item.name} is set`, ...(answer.body.warnings ?? [])].join('; '));
      await refresh('owners');
      props.onClose();
    } catch (error) {
      setProblem(trouble(error));
      setBusy(false);
    }
  };
  const show = (field: FieldKind) => (
    <TextField
      key={field.id}
      label={field.label}
      hint={field.hint}
      placeholder={field.placeholder}
      value={draft[field.id] ?? ''}
      onChange={value => setDraft({ ...draft, [field.id]: value })}
      problem={wrong(field.id)}
      mode={field.kind === 'amount' || field.kind === 'whole' ? 'decimal' : undefined}
    />
  );
  const isShown =
    problem?.field != null &&
    (problem.field === 'name' || problem.field in draft || problem.field === above.id);
  return (
    <Dialog title={name === null ? `New ${noun}` : `Change ${name}`} wide onClose={props.onClose}>
      <form
        noValidate
        onSubmit={event => {
          event.preventDefault();
          void send();
        }}
      >
        <div className="dialog-body">
          <div className="form">
            {name === null && (
              <TextField
                label="Name"
                value={newName}
                onChange={setNewName}
                problem={wrong('name')}
                placeholder="vision"
                autoFocus
              />
            )}
            <SelectField
              label={above.label}
              value={part}
              onChange={setPart}
              problem={wrong(above.id)}
              options={[
                ...(above.none || belongs === '' ? [{ value: '', text: 'none' }] : []),
                ...above.options.map(option => ({ value: option, text: option })),
              ]}
            />
            {fields.slice(0, AMOUNTS.length).map(show)}
            {fields.length > AMOUNTS.length && (
              <details open={fields.slice(AMOUNTS.length).some(field => before[field.id] !== '')}>
                <summary>Time limits and nodes</summary>
                <div>{fields.slice(AMOUNTS.length).map(show)}</div>
              </details>
            )}
          </div>
        </div>
        <div className="dialog-tail">
          {problem && !isShown && <TroubleNote of={problem} />}
          {problem?.hint && isShown && <p className="note">{sentence(problem.hint)}</p>}
          <Copyable text={line} label="Copy the command" />
        </div>
        <footer>
          <Button onClick={props.onClose}>Cancel</Button>
          <Button type="submit" kind="primary" disabled={busy}>
            {name === null ? 'Create' : 'Save'}
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}

/** Departments in which somebody may make or move something. */
function useSettable(): string[] {
  const may = useMay();
  const departments = useKnown(known => known.departments);
  return departments.map(one => one.name).filter(name => may.do('settings', `department/${name}`));
}

export function ProjectForm({ of, onClose }: { of: Project | null; onClose: () => void }) {
  const may = useMay();
  const departments = useSettable();
  return (
    <Shape
      noun="project"
      name={of?.name ?? null}
      fields={[...AMOUNTS, ...OF_PROJECTS]}
      settings={(of?.settings ?? {}) as Record<string, unknown>}
      above={{
        id: 'department',
        label: 'Department',
        options: departments,
        none: may.do('settings'),
      }}
      onClose={onClose}
    />
  );
}

export function DepartmentForm({ of, onClose }: { of: Department | null; onClose: () => void }) {
  const may = useMay();
  const others = useSettable().filter(name => name !== of?.name);
  return (
    <Shape
      noun="department"
      name={of?.name ?? null}
      fields={AMOUNTS}
      settings={(of?.settings ?? {}) as Record<string, unknown>}
      above={{ id: 'parent', label: 'Part of', options: others, none: may.do('settings') }}
      onClose={onClose}
    />
  );
}
