// A form that does what `berth submit` does, and shows how that would be typed.
import { useMemo, useState } from 'react';
import { call } from '../api/client.ts';
import type { Preview, Submitted, Workload, WorkloadRequest } from '../api/types.ts';
import { imageOf } from '../model/format.ts';
import { submitted } from '../model/live.ts';
import { useMay } from '../model/may.ts';
import {
  applies,
  beginRequest,
  changed,
  FIRST,
  lowerRequest,
  MORE,
  PARTS,
  type PartId,
} from '../model/request.ts';
import { go } from '../model/router.ts';
import { useKnown } from '../model/store.ts';
import { FormDialog } from '../parts/dialog.tsx';
import { sentence, type Trouble, TroubleNote, trouble } from '../parts/failure.tsx';
import { MoreFields, PartField } from '../parts/field.tsx';
import { say } from '../parts/toast.tsx';

export function Submit({ from, onClose }: { from: WorkloadRequest | null; onClose: () => void }) {
  const may = useMay();
  const projects = useKnown(known => known.projects)
    .map(project => project.name)
    .filter(name => may.do('submit', `project/${name}`));
  const nodes = useKnown(known => known.nodes);
  const workloads = useKnown(known => known.workloads);
  const images = useMemo(() => usedImages(workloads), [workloads]);
  const [before] = useState(() => beginRequest(from, projects[0] ?? ''));
  const [draft, setDraft] = useState(before);
  const [tried, setTried] = useState(false);
  const [problem, setProblem] = useState<Trouble | null>(null);
  const [preview, setPreview] = useState<{ of: WorkloadRequest; is: Preview } | null>(null);
  const { request, problems, command } = useMemo(() => lowerRequest(draft), [draft]);
  const wrong = (id: string): string | null =>
    (tried || draft[id] !== '' ? problems[id] : undefined) ??
    (problem?.field === id ? sentence(problem.detail) : null);
  const ask = async (work: () => Promise<void>) => {
    setTried(true);
    setProblem(null);
    setPreview(null);
    if (Object.keys(problems).length > 0) return;
    try {
      await work();
    } catch (error) {
      setProblem(trouble(error));
    }
  };
  const send = () =>
    ask(async () => {
      const { body } = await call<Submitted>('POST', '/workloads', request);
      submitted(body.workload);
      say([`Submitted ${body.workload.name}`, ...(body.warnings ?? [])].join('; '));
      onClose();
      go(`/workloads/${body.workload.id}`);
    });
  const foresee = () =>
    ask(async () => {
      const { body } = await call<Preview>('POST', '/workloads?dry_run=true', request);
      setPreview({ of: request, is: body });
    });
  const known = (id: PartId) => {
    if (id === 'project') return projects;
    if (id === 'image') return images;
    if (id === 'node_pool') return [...new Set(nodes.map(node => node.pool))].sort();
    if (id === 'gpu_models')
      return [...new Set(nodes.flatMap(node => node.devices.map(one => one.model)))].sort();
    return undefined;
  };
  const show = (id: PartId) =>
    applies(id, draft) && (
      <PartField
        key={id}
        part={PARTS[id]}
        value={draft[id] ?? ''}
        onChange={value => {
          setDraft(changed(draft, id, value));
          setPreview(null);
          if (problem?.field === id) setProblem(null);
        }}
        problem={wrong(id)}
        options={known(id)?.map(value => ({ value, text: value }))}
        autoFocus={id === 'name'}
      />
    );
  const isShown = problem?.field != null && problem.field in PARTS;
  return (
    <FormDialog
      title={from ? 'Submit again' : 'Submit a workload'}
      verb="Submit"
      command={command}
      wide
      notes={
        <>
          {problem && !isShown && <TroubleNote of={problem} />}
          {problem?.hint && isShown && <p className="note">{sentence(problem.hint)}</p>}
          {/* What was asked about may have been changed before the answer came. */}
          {preview?.of === request && <WhatWouldHappen preview={preview.is} />}
        </>
      }
      other={{ verb: 'Dry run', onDo: foresee }}
      onSend={send}
      onClose={onClose}
    >
      <div className="form">
        {FIRST.map(show)}
        {MORE.map(({ title, ids }) => (
          <MoreFields
            key={title}
            title={title}
            ids={ids}
            before={before}
            wrong={wrong}
            open={ids.includes('workers') && (draft.kind === 'distributed' || draft.kind === 'inference')}
          >
            {ids.map(show)}
          </MoreFields>
        ))}
      </div>
    </FormDialog>
  );
}

/** Images that others run, the most used first, after those that are always there. */
function usedImages(workloads: ReadonlyMap<number, Workload>): string[] {
  const counts = new Map<string, number>();
  for (const workload of workloads.values()) {
    const image = imageOf(workload);
    if (image !== '') counts.set(image, (counts.get(image) ?? 0) + 1);
  }
  const used = [...counts].sort((a, b) => b[1] - a[1]).map(([image]) => image);
  const always = PARTS.image.options.map(option => option.value);
  return [...new Set([...used.slice(0, IMAGES_MAX), ...always])];
}

const IMAGES_MAX = 20;

function WhatWouldHappen({ preview }: { preview: Preview }) {
  const where = preview.nodes.join(', ');
  const others = Object.entries(preview.evicts_others ?? {}).map(([project, count]) =>
    count === 1 ? `a workload of ${project}` : `${count} workloads of ${project}`,
  );
  const evicts = [...preview.evicts, ...others];
  const text = preview.starts
    ? evicts.length === 0
      ? `It would start now on ${where}.`
      : `It would start on ${where} after the preemption of ${evicts.join(', ')}.`
    : `It would wait. ${sentence(preview.waits ?? 'the reason is unknown')}`;
  return (
    <div className={`note ${preview.starts ? '' : 'warn'}`} role="status">
      <p>{text}</p>
      {preview.changes?.map(change => (
        <p key={change.text}>{sentence(change.text)}</p>
      ))}
      {preview.warnings?.map(warning => (
        <p key={warning}>{sentence(warning)}</p>
      ))}
    </div>
  );
}
