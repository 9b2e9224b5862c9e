import { type KeyboardEvent, type ReactNode, useId, useState } from 'react';

export interface Tab {
  id: string;
  title: string;
  show: () => ReactNode;
  /** Goes on unseen when another is looked at. */
  keep?: boolean;
}

/** One of several views; arrow keys go from one to the next. */
export function Tabs({
  tabs,
  at,
  onChange,
  label,
}: {
  tabs: Tab[];
  at: string;
  onChange: (id: string) => void;
  label: string;
}) {
  const prefix = useId();
  const current = tabs.find(tab => tab.id === at) ?? tabs[0]!;
  const [kept, setKept] = useState<readonly string[]>([]);
  if (current.keep && !kept.includes(current.id)) setKept([...kept, current.id]);
  const there = tabs.filter(tab => tab === current || (tab.keep && kept.includes(tab.id)));
  const move = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (step === 0) return;
    const next = tabs[(tabs.indexOf(current) + step + tabs.length) % tabs.length]!;
    onChange(next.id);
    document.getElementById(`${prefix}-${next.id}`)?.focus();
  };
  return (
    <>
      <div className="tabs" role="tablist" aria-label={label} onKeyDown={move}>
        {tabs.map(tab => (
          <button
            key={tab.id}
            type="button"
            role="tab"
            id={`${prefix}-${tab.id}`}
            aria-selected={tab === current}
            aria-controls={`${prefix}-${tab.id}-panel`}
            tabIndex={tab === current ? 0 : -1}
            onClick={() => onChange(tab.id)}
          >
            {tab.title}
          </button>
        ))}
      </div>
      {there.map(tab => (
        <div
          key={tab.id}
          className="tab-panel"
          role="tabpanel"
          id={`${prefix}-${tab.id}-panel`}
          aria-labelledby={`${prefix}-${tab.id}`}
          hidden={tab !== current}
        >
          {tab.show()}
        </div>
      ))}
    </>
  );
}
