// One workload on a page of its own, with an address to send to others.
import { useState } from 'react';
import type { WorkloadRequest } from '../api/types.ts';
import { usePlace } from '../model/router.ts';
import { Submit } from './submit.tsx';
import { WorkloadWhole } from './workload-drawer.tsx';

export default function WorkloadPage() {
  const place = usePlace();
  const id = Number(place.parts[1] ?? '');
  const [submitting, setSubmitting] = useState<WorkloadRequest | null>(null);
  return (
    <>
      <WorkloadWhole
        key={id}
        id={id}
        onClone={request => setSubmitting({ ...request, name: undefined, command_line: undefined })}
      />
      {submitting !== null && <Submit from={submitting} onClose={() => setSubmitting(null)} />}
    </>
  );
}
