// A field of a form: its name, what it is for, and what is wrong with it, beside it.
import { type ReactNode, useId } from 'react';

export interface FieldProps {
  label: string;
  hint?: string;
  problem?: string | null;
  wide?: boolean;
}

function Frame(props: FieldProps & { id: string; children: ReactNode }) {
  return (
    <div className={`field ${props.wide ? 'wide' : ''} ${props.problem ? 'wrong' : ''}`}>
      <label htmlFor={props.id}>{props.label}</label>
      {props.children}
      {props.problem ? (
        <p className="field-problem" id={`${props.id}-note`} role="alert">
          {props.problem}
        </p>
      ) : (
        props.hint && (
          <p className="field-hint" id={`${props.id}-note`}>
            {props.hint}
          </p>
        )
      )}
    </div>
  );
}

export function TextField(
  props: FieldProps & {
    value: string;
    onChange: (value: string) => void;
    placeholder?: string;
    type?: 'text' | 'password';
    mono?: boolean;
    rows?: number;
    required?: boolean;
    autoFocus?: boolean;
    list?: string[];
    mode?: 'decimal' | 'numeric';
  },
) {
  const id = useId();
  const shared = {
    id,
    value: props.value,
    placeholder: props.placeholder,
    required: props.required,
    className: props.mono ? 'mono' : undefined,
    'aria-invalid': props.problem ? true : undefined,
    'aria-describedby': props.problem || props.hint ? `${id}-note` : undefined,
    spellCheck: false,
    autoComplete: 'off',
  } as const;
  return (
    <Frame {...props} id={id}>
      {props.rows ? (
        <textarea {...shared} rows={props.rows} onChange={event => props.onChange(event.target.value)} />
      ) : (
        <input
          {...shared}
          type={props.type ?? 'text'}
          inputMode={props.mode}
          // biome-ignore lint/a11y/noAutofocus: a dialog that was asked for begins at its first field.
          autoFocus={props.autoFocus}
          list={props.list ? `${id}-list` : undefined}
          onChange={event => props.onChange(event.target.value)}
        />
      )}
      {props.list && (
        <datalist id={`${id}-list`}>
          {props.list.map(value => (
            <option key={value} value={value} />
          ))}
        </datalist>
      )}
    </Frame>
  );
}

export function SelectField(
  props: FieldProps & {
    value: string;
    onChange: (value: string) => void;
    options: { value: string; text: string }[];
  },
) {
  const id = useId();
  return (
    <Frame {...props} id={id}>
      <select
        id={id}
        value={props.value}
        aria-invalid={props.problem ? true : undefined}
        aria-describedby={props.problem || props.hint ? `${id}-note` : undefined}
        onChange={event => props.onChange(event.target.value)}
      >
        {props.options.map(option => (
          <option key={option.value} value={option.value}>
            {option.text}
          </option>
        ))}
      </select>
    </Frame>
  );
}

export function CheckField(props: { label: string; checked: boolean; onChange: (checked: boolean) => void }) {
  return (
    <label className="check">
      <input
        type="checkbox"
        checked={props.checked}
        onChange={event => props.onChange(event.target.checked)}
      />
      {props.label}
    </label>
  );
}
