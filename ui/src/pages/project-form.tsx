// What is set of a project or a department.
import { useState } from 'react';
import { call } from '../api/client.ts';
import type { Department, DepartmentSettings, Project, ProjectSettings, Warned } from '../api/types.ts';
import { quoted } from '../model/command.ts';
import type { AnyParts, Parts } from '../model/form.ts';
import * as form from '../model/form.ts';
import { refresh } from '../model/live.ts';
import { useMay } from '../model/may.ts';
import * as shape from '../model/shape.ts';
import { useKnown } from '../model/store.ts';
import { FormDialog } from '../parts/dialog.tsx';
import { sentence, type Trouble, TroubleNote, trouble } from '../parts/failure.tsx';
import { MoreFields, PartField, SelectField, TextField } from '../parts/field.tsx';
import { say } from '../parts/toast.tsx';

const AMOUNTS = {
  quota: { label: 'Quota', flag: '--quota', shape: shape.amount, hint: 'GPUs it can always have back' },
  limit: {
    label: 'Limit',
    flag: '--limit',
    shape: shape.amount,
    hint: 'The most GPUs it may use',
    placeholder: 'none',
  },
  weight: {
    label: 'Weight',
    flag: '--weight',
    shape: shape.amount,
    hint: 'Its part of idle GPUs; 0 does not borrow',
    placeholder: 'its quota',
  },
  rank: {
    label: 'Rank',
    flag: '--rank',
    shape: shape.whole(Number.NEGATIVE_INFINITY),
    hint: 'Higher ranks borrow first',
    placeholder: '0',
  },
};

/** A limit of time; none is written as zero. */
const limit = { ...shape.span, write: (secs: number) => (secs === 0 ? '' : shape.span.write(secs)) };

/** What can be set of a department; the pool that amounts are for is said by the command line alone. */
const OF_DEPARTMENTS = AMOUNTS satisfies Parts<DepartmentSettings, 'name' | 'parent' | 'node_pool' | 'unset'>;

const OF_PROJECTS = {
  ...AMOUNTS,
  interactive_limit_secs: {
    label: 'Interactive time limit',
    flag: '--interactive-limit',
    shape: limit,
    placeholder: 'never',
  },
  time_limit_secs: {
    label: 'Time limit of any work',
    flag: '--time-limit',
    shape: limit,
    placeholder: 'never',
  },
  idle_limit_secs: {
    label: 'Idle limit',
    flag: '--idle-limit',
    shape: limit,
    placeholder: 'never',
  },
  min_run_secs: {
    label: 'Minimum run time before a preemption',
    flag: '--min-run',
    shape: limit,
    placeholder: 'at any time',
  },
  train_nodes: {
    label: 'Training node affinity',
    flag: '--train-nodes',
    shape: shape.labels,
    placeholder: 'any, or LABEL=VALUE',
  },
  interactive_nodes: {
    label: 'Interactive node affinity',
    flag: '--interactive-nodes',
    shape: shape.labels,
    placeholder: 'any, or LABEL=VALUE',
  },
  model_quotas: {
    label: 'Quota by GPU model',
    flag: '--model-quota',
    shape: shape.amounts('MODEL=GPUS'),
    hint: 'Part of the quota',
    placeholder: 'MODEL=GPUS',
  },
  cpu_quota: { label: 'CPU quota', flag: '--cpu-quota', shape: shape.amount, placeholder: 'none' },
  memory_quota: {
    label: 'Memory quota',
    flag: '--memory-quota',
    shape: shape.bytes,
    placeholder: 'none, or 512Gi',
  },
  allow_host_network: {
    label: 'Allow host network',
    flag: '--allow-host-network',
    shape: shape.check,
  },
  allow_privileged: {
    label: 'Allow privileged',
    flag: '--allow-privileged',
    shape: shape.check,
  },
} satisfies Parts<ProjectSettings, 'name' | 'department' | 'node_pool' | 'unset'>;

interface Group {
  title: string;
  ids: string[];
}

const MORE: Group[] = [
  {
    title: 'Time limits and nodes',
    ids: [
      'interactive_limit_secs',
      'time_limit_secs',
      'idle_limit_secs',
      'min_run_secs',
      'train_nodes',
      'interactive_nodes',
    ],
  },
  { title: 'Other guarantees', ids: ['model_quotas', 'cpu_quota', 'memory_quota'] },
  { title: 'On Kubernetes', ids: ['allow_host_network', 'allow_privileged'] },
];

function Settings(props: {
  noun: 'project' | 'department';
  name: string | null;
  parts: AnyParts;
  more: Group[];
  settings: object;
  /** The field that names what it is part of. */
  above: { id: 'department' | 'parent'; label: string; options: string[]; none: boolean };
  onClose: () => void;
}) {
  const { noun, name, parts, above } = props;
  const set = props.settings as Record<string, unknown>;
  const [before] = useState(() => form.begin(parts, set));
  const [draft, setDraft] = useState(before);
  const belongs = String(set[above.id] ?? '');
  // Whoever sets things below a department only begins there.
  const [part, setPart] = useState(name === null && !above.none ? (above.options[0] ?? '') : belongs);
  const [newName, setNewName] = useState('');
  const [problem, setProblem] = useState<Trouble | null>(null);
  const lowered = form.lower(parts, draft, before);
  const words = Object.values(lowered.words).flat();
  if (part !== belongs) words.push(`--${above.id}`, quoted(part));
  const verb = name === null ? 'create' : 'update';
  const line = ['berth', noun, verb, quoted(name ?? (newName.trim() || 'NAME')), ...words].join(' ');
  const wrong = (id: string): string | null =>
    lowered.problems[id] ?? (problem?.field === id ? sentence(problem.detail) : null);
  const mended = (id: string) => {
    if (problem?.field === id) setProblem(null);
  };
  const send = async () => {
    setProblem(null);
    if (Object.keys(lowered.problems).length > 0) return;
    const body = { ...lowered.set, ...(part === belongs ? {} : { [above.id]: part }) };
    try {
      const answer =
        name === null
          ? await call<Warned<Project | Department>>('POST', `/${noun}s`, { ...body, name: newName.trim() })
          : await call<Warned<Project | Department>>('PATCH', `/${noun}s/${encodeURIComponent(name)}`, {
              ...body,
              unset: lowered.unset,
            });
      say(
        [
          `${name === null ? 'Created' : 'Saved'} ${answer.body.item.name}`,
          ...(answer.body.warnings ?? []),
        ].join('; '),
      );
      await refresh('owners');
      props.onClose();
    } catch (error) {
      setProblem(trouble(error));
    }
  };
  const show = (id: string) => (
    <PartField
      key={id}
      part={parts[id]!}
      value={draft[id] ?? ''}
      onChange={value => {
        setDraft({ ...draft, [id]: value });
        mended(id);
      }}
      problem={wrong(id)}
    />
  );
  const isShown = problem?.field != null && ['name', above.id, ...Object.keys(parts)].includes(problem.field);
  return (
    <FormDialog
      title={name === null ? `New ${noun}` : `Change ${name}`}
      verb={name === null ? 'Create' : 'Save'}
      command={line}
      wide
      notes={
        <>
          {problem && !isShown && <TroubleNote of={problem} />}
          {problem?.hint && isShown && <p className="note">{sentence(problem.hint)}</p>}
        </>
      }
      onSend={send}
      onClose={props.onClose}
    >
      <div className="form">
        {name === null && (
          <TextField
            label="Name"
            value={newName}
            onChange={value => {
              setNewName(value);
              mended('name');
            }}
            problem={wrong('name')}
            placeholder="vision"
            autoFocus
          />
        )}
        <SelectField
          label={above.label}
          value={part}
          onChange={value => {
            setPart(value);
            mended(above.id);
          }}
          problem={wrong(above.id)}
          options={[
            ...(above.none || belongs === '' ? [{ value: '', text: 'none' }] : []),
            ...above.options.map(option => ({ value: option, text: option })),
          ]}
        />
        {Object.keys(AMOUNTS).map(show)}
        {props.more.map(({ title, ids }) => (
          <MoreFields key={title} title={title} ids={ids} before={before} wrong={wrong}>
            {ids.map(show)}
          </MoreFields>
        ))}
      </div>
    </FormDialog>
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
    <Settings
      noun="project"
      name={of?.name ?? null}
      parts={OF_PROJECTS}
      more={MORE}
      settings={of?.settings ?? {}}
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
    <Settings
      noun="department"
      name={of?.name ?? null}
      parts={OF_DEPARTMENTS}
      more={[]}
      settings={of?.settings ?? {}}
      above={{ id: 'parent', label: 'Part of', options: others, none: may.do('settings') }}
      onClose={onClose}
    />
  );
}
