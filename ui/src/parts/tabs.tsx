import { type KeyboardEvent, type ReactNode, useId } from 'react';

export interface Tab {
  id: string;
  title: string;
  show: () => ReactNode;
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
            aria-controls={`${prefix}-panel`}
            tabIndex={tab === current ? 0 : -1}
            onClick={() => onChange(tab.id)}
          >
            {tab.title}
          </button>
        ))}
      </div>
      <div
        className="tab-panel"
        role="tabpanel"
        id={`${prefix}-panel`}
        aria-labelledby={`${prefix}-${current.id}`}
      >
        {current.show()}
      </div>
    </>
  );
}
